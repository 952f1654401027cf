"""What a story is about, and how it is written: `JOB`, `JOB/3/2`, `JOB/3/2/PROMPT/0`, `JOB@5`, `1.42`, `box/trainer/0`.

Pure. Invariant: `str` of a subject is what `parsed` makes the same subject of.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["job", "worker", "micro-batch", "sample", "lease", "policy version"]

FORMS = """JOB, a worker (box/trainer/0), a micro-batch (JOB/ROLLOUT/MICRO-BATCH), a sample (that, and /PROMPT/INDEX),
a policy version (JOB@5), a lease (1.42)"""

_ROLES = ("generator", "trainer", "reward", "recorder")
_JOB = r"(?P<job>[A-Za-z0-9][A-Za-z0-9._-]*)"
_LEASE = re.compile(r"\d+\.\d+")
_VERSION = re.compile(_JOB + r"@(?P<version>\d+)")
_MICRO_BATCH = re.compile(_JOB + r"/(?P<rollout>\d+)/(?P<micro_batch>\d+)")
_SAMPLE = re.compile(_MICRO_BATCH.pattern + r"/(?P<prompt>.+)/(?P<index>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Fields that its kind does not have are empty or -1. `name`: of a worker or a lease."""

    kind: Kind
    name: str = ""
    job: str = ""
    rollout: int = -1
    micro_batch: int = -1
    prompt: str = ""
    index: int = -1
    version: int = -1

    def __str__(self) -> str:
        match self.kind:
            case "job":
                return self.job
            case "worker" | "lease":
                return self.name
            case "policy version":
                return f"{self.job}@{self.version}"
            case "micro-batch":
                return f"{self.job}/{self.rollout}/{self.micro_batch}"
            case "sample":
                return f"{self.job}/{self.rollout}/{self.micro_batch}/{self.prompt}/{self.index}"


def parsed(text: str) -> Subject:
    """The subject that is written so; what has no other form is a job. Raises ValueError for a worker's lookalike."""
    if _LEASE.fullmatch(text):
        return Subject(kind="lease", name=text)
    if found := _VERSION.fullmatch(text):
        return Subject(kind="policy version", job=found["job"], version=int(found["version"]))
    if found := _MICRO_BATCH.fullmatch(text):
        return _micro_batch(found)
    if found := _SAMPLE.fullmatch(text):
        return replace(_micro_batch(found), kind="sample", prompt=found["prompt"], index=int(found["index"]))
    if "/" not in text:
        return Subject(kind="job", job=text)
    if text.split("/")[1] in _ROLES:
        return Subject(kind="worker", name=text)
    raise ValueError(f"{text!r} is none of: {' '.join(FORMS.split())}")


def _micro_batch(found: re.Match[str]) -> Subject:
    rollout, micro_batch = int(found["rollout"]), int(found["micro_batch"])
    return Subject(kind="micro-batch", job=found["job"], rollout=rollout, micro_batch=micro_batch)
