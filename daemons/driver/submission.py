"""A job file before the core hears of it: checked, its prompts found, made a `JobSpec`, given an id.

`prepare` is blocking (plug-ins are imported) and runs beside the event loop; `Register` decides ids on
the loop. Invariant: an id stands for one content for ever, so that a submit may be sent again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from broker.spec import JobSpec
from daemons.driver.jobs import to_spec
from daemons.driver.journal import JobRow
from daemons.driver.parents import Parent, require_fitting
from daemons.driver.refusal import Refusal as Refusal
from daemons.driver.uploads import UploadRefused, Uploads
from daemons.trackers.wandb_tracker import MISSING, is_installed
from digend.config.checking import validated
from digend.config.errors import ConfigError
from digend.config.job import JobConfig
from digend.config.prompts import PromptRow, unpacked_prompts
from digend.config.source import Source
from digend.exitcodes import ExitCode
from digend.job_check import validate_job
from digend.printable import MAX_CHARS, is_control
from digend.wire.requests import Submit

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")

PRIORITIES = 1000
"""A priority is at most so far from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sound job that has no id yet; `wanted` is the one asked for."""

    spec: JobSpec
    digest: str
    toml: str
    wanted: str | None
    prompts: str
    eval_prompts: str | None


def prepare(submit: Submit, uploads: Uploads, parent: Parent | None = None) -> Prepared:
    """Checks a job file and what it names. `parent`: of a fork. Raises Refusal (BAD_CONFIG, or USAGE for a wrong
    request)."""
    if submit.job is not None and not _ID.fullmatch(submit.job):
        raise Refusal(ExitCode.USAGE, f"job id {submit.job!r}: letters, digits, dot, underscore, dash; 96 at most")
    need_priority(submit.priority)
    need_plain(user=submit.user)
    config = _config(submit.config)
    if "wandb" in config.tracking.use and not is_installed():
        raise Refusal(ExitCode.BAD_CONFIG, MISSING)
    if parent is not None:
        require_fitting(parent, config)
        submit = _with_prompts_of(parent, submit, config)
    prompts = _prompts(uploads, submit.prompts)
    evaluated = None if submit.eval_prompts is None else _prompts(uploads, submit.eval_prompts)
    try:
        validate_job(config, prompts)
        spec = to_spec(config, prompts, evaluated, "")
    except (ConfigError, ValueError) as error:
        raise Refusal(ExitCode.BAD_CONFIG, str(error)) from error
    return Prepared(
        spec=replace(spec, origin=parent.checkpoint if parent else None),
        digest=_digest(config, submit),
        toml=submit.toml,
        wanted=submit.job,
        prompts=submit.prompts,
        eval_prompts=submit.eval_prompts,
    )


def _with_prompts_of(parent: Parent, submit: Submit, config: JobConfig) -> Submit:
    """What a fork does not bring along is its parent's."""
    evaluated = submit.eval_prompts
    if evaluated is None and config.eval.prompts is not None:
        evaluated = parent.eval_prompts
    return replace(submit, prompts=submit.prompts or parent.prompts, eval_prompts=evaluated)


def need_plain(**texts: str) -> None:
    """Raises Refusal for control characters and for long texts: these are journalled, and shown on other people's
    terminals."""
    for name, text in texts.items():
        if len(text) > MAX_CHARS:
            said = f"{len(text):,} characters, and at most {MAX_CHARS:,} are taken"
            raise Refusal(ExitCode.USAGE, f"{name} {text[:40]!r}...: {said}")
        if any(map(is_control, text)):
            raise Refusal(ExitCode.USAGE, f"{name} {text[:40]!r}: no control characters, nor line ends")


def need_priority(priority: int) -> None:
    """Raises Refusal for one that is out of bounds."""
    if abs(priority) > PRIORITIES:
        raise Refusal(ExitCode.USAGE, f"priority {priority}: from {-PRIORITIES} to {PRIORITIES}")


class Register:
    """Ids and contents of all jobs ever submitted. `taken(id)`: a run folder of that name exists."""

    def __init__(self, rows: Iterable[JobRow], taken: Callable[[str], bool]) -> None:
        self._digests = {row.id: row.digest for row in rows}
        self._taken = taken

    def admit(self, prepared: Prepared, keep: bool = True) -> tuple[JobSpec, JobRow | None]:
        """The job under its id, and the row to keep; no row where this very job is known. `keep`: the id is taken.

        Raises Refusal.
        """
        job = prepared.wanted or self._next_free(prepared.spec.name)
        known = self._digests.get(job)
        if known == prepared.digest:
            return replace(prepared.spec, id=job), None
        if known is not None:
            raise Refusal(
                ExitCode.USAGE,
                f"job {job} exists with other content: digest {known} there, {prepared.digest} submitted now",
            )
        if self._taken(job):
            raise Refusal(ExitCode.USAGE, f"job {job}: a run folder of that name exists, of no job known here")
        if keep:
            self._digests[job] = prepared.digest
        row = JobRow(
            id=job,
            digest=prepared.digest,
            toml=prepared.toml,
            prompts=prepared.prompts,
            eval_prompts=prepared.eval_prompts,
        )
        return replace(prepared.spec, id=job), row

    def _next_free(self, name: str) -> str:
        number = 1
        while (job := f"{name}-{number:03d}") in self._digests or self._taken(job):
            number += 1
        return job


def _config(text: str) -> JobConfig:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(ExitCode.USAGE, f"the job file did not arrive as JSON: {error}") from error
    if not isinstance(table, dict):
        raise Refusal(ExitCode.USAGE, "the job file did not arrive as a table")
    config, problems = validated(JobConfig, table, Source(path="", text="", table=table))
    if problems or config is None:
        raise Refusal(ExitCode.BAD_CONFIG, str(ConfigError(problems)))
    return config


def _prompts(uploads: Uploads, digest: str) -> list[PromptRow]:
    try:
        return unpacked_prompts(uploads.read(digest))
    except UploadRefused as error:
        raise Refusal(ExitCode.USAGE, f"prompts: {error}") from error
    except ValueError as error:
        raise Refusal(ExitCode.BAD_CONFIG, f"prompts: {error}") from error


def _digest(config: JobConfig, submit: Submit) -> str:
    """Over what decides the run: the resolved config without regard to order, and the prompts."""
    table = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    parts = [table, submit.prompts, submit.eval_prompts]
    if submit.fork is not None:
        parts += [submit.fork.parent, str(submit.fork.global_step)]
    content = json.dumps(parts)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
