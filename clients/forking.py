"""A job's file with changes laid over it, as a request for a fork.

Imports the job's models, so it is imported by `fork` only. Must not know the parent's checkpoints: the driver does.
"""

from collections.abc import Sequence
from dataclasses import replace

from clients.submission import Submission
from digend.config.prompts import packed_prompts
from digend.job_check import read_fork
from digend.wire.requests import ForkOf, Submit


def fork_submission(parent: str, toml: str, overrides: Sequence[str]) -> Submission:
    """The job file `toml` of the whole id `parent` with its changes; prompts only where those are changed.

    Paths in overrides are relative to this process's folder. Raises ConfigError.
    """
    inputs = read_fork(parent, toml, overrides)
    evaluation = None if inputs.eval_prompts is None else packed_prompts(inputs.eval_prompts)
    return Submission(inputs, packed_prompts(inputs.prompts) if inputs.prompts else b"", evaluation)


def fork_request(prepared: Submission, request: str, parent: str, global_step: int, job: str | None) -> Submit:
    """Prompts that were not changed are the parent's, as the driver has them."""
    asked = prepared.request(request, job)
    prompts = asked.prompts if prepared.prompts else ""
    return replace(asked, prompts=prompts, fork=ForkOf(parent=parent, global_step=global_step))
