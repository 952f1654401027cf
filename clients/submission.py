"""A job file made into requests: the prompts as uploads under their digest, then the job itself.

Imports the job's models, so it is imported by `submit` only. Sending the same again is harmless: an upload is known
by its content, and the driver says which part of it is still wanted.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from clients.site import with_tracking
from digend.config.emit import resolved_toml
from digend.config.prompts import content_digest, packed_prompts
from digend.config.tracking import TrackingConfig
from digend.exitcodes import ExitCode
from digend.job_check import JobInputs, read_job
from digend.net.client import Client, RequestFailed
from digend.wire import replies, requests

CHUNK_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked job with its files as bytes."""

    inputs: JobInputs
    prompts: bytes
    eval_prompts: bytes | None

    @property
    def files(self) -> tuple[bytes, ...]:
        return (self.prompts,) if self.eval_prompts is None else (self.prompts, self.eval_prompts)

    def request(self, request: str, job: str | None) -> requests.Submit:
        return requests.Submit(
            request=request,
            config=self.inputs.config.model_dump_json(),
            toml=resolved_toml(self.inputs.config),
            prompts=content_digest(self.prompts),
            eval_prompts=None if self.eval_prompts is None else content_digest(self.eval_prompts),
            job=job,
        )


def submission(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), tracking: TrackingConfig | None = None
) -> Submission:
    """Reads and checks a job file; `tracking` stands where it says nothing. Raises ConfigError."""
    inputs = read_job(path, overrides)
    inputs = replace(inputs, config=with_tracking(inputs.config, tracking))
    evaluation = None if inputs.eval_prompts is None else packed_prompts(inputs.eval_prompts)
    return Submission(inputs, packed_prompts(inputs.prompts), evaluation)


def upload(client: Client, content: bytes, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Sends a file until the driver has all of it. Raises ClientError, as for any request."""
    digest, offset, complete = content_digest(content), 0, False
    while not complete:
        reply = client.request(
            requests.Upload(
                request=uuid4().hex,
                digest=digest,
                offset=offset,
                size=len(content),
                data=content[offset : offset + chunk_bytes],
            ),
            replies.Uploaded,
        )
        if not reply.complete and reply.next_offset == offset:
            raise RequestFailed(ExitCode.TARGET_FAILED, f"the driver takes no more of an upload at {offset} bytes")
        offset, complete = reply.next_offset, reply.complete
