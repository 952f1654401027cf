"""Which job, or worker, a person means: a whole id, the beginning of one, or nothing at all. Pure."""

from collections.abc import Sequence
from difflib import get_close_matches

from digend.wire.views import JobView

LISTED = 6
"""Names that an error lists."""


class NotFound(LookupError):
    """Nothing of that name; the message has the nearest."""

    def __str__(self) -> str:
        return str(self.args[0])


class AmbiguousId(ValueError):
    """Several names begin so; the message lists them."""


class BadSubject(ValueError):
    """Nothing that has a story is written so; the message has the forms."""


def job_id(jobs: Sequence[JobView], wanted: str | None, *, begun: bool = False) -> str:
    """The id meant by `wanted`; where it is None the newest job, with `begun` the newest of those that have begun, if
    any has: of one that only waits nothing can be told. Raises NotFound, AmbiguousId."""
    if wanted is not None:
        return name_of("job", [job.id for job in jobs], wanted)
    if not jobs:
        raise NotFound("no jobs yet; the next step: digenctl submit JOB.toml")
    return max(jobs, key=lambda job: (begun and job.started_ns is not None, job.submitted_ns)).id


def name_of(kind: str, names: Sequence[str], wanted: str) -> str:
    """The one name that is `wanted`, or begins with it. Raises NotFound, AmbiguousId."""
    if not wanted:
        raise AmbiguousId(f"an empty name is the beginning of every {kind}'s: name one")
    begun = [name for name in names if name.startswith(wanted)]
    if wanted in begun or len(begun) == 1:
        return wanted if wanted in begun else begun[0]
    if begun:
        more = f" and {len(begun) - LISTED} more" if len(begun) > LISTED else ""
        raise AmbiguousId(f"several {kind}s begin with {wanted!r}: {', '.join(begun[:LISTED])}{more}")
    near = get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else f" (digenctl {kind}s lists them)"
    raise NotFound(f"no {kind} {wanted!r}{hint}")
