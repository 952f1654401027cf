"""Which thing a person means by an id, and what to say where there is none of it. Asks the driver for names."""

from difflib import get_close_matches

from clients.api import Digend
from clients.jobs import BadSubject, NotFound, job_id, name_of
from digend.wire import records as r
from digend.wire.subjects import Subject, parsed


def subject_of(driver: Digend, wanted: str | None) -> Subject:
    """The whole id that is meant; the newest job where it is None. Raises NotFound, AmbiguousId, BadSubject."""
    jobs = driver.jobs()
    if wanted is None or wanted in {job.id for job in jobs}:
        return Subject(kind="job", job=job_id(jobs, wanted))
    try:
        subject = parsed(wanted)
    except ValueError as error:
        if not any(node.name.startswith(wanted) for node in driver.nodes()):
            raise BadSubject(str(error)) from error
        return _job_or_worker(driver, wanted)
    if subject.kind in ("job", "worker"):
        return _job_or_worker(driver, wanted)
    if subject.job:
        return parsed(f"{job_id(jobs, subject.job)}{wanted.removeprefix(subject.job)}")
    return subject


def _job_or_worker(driver: Digend, wanted: str) -> Subject:
    """A beginning: of a job's id, or else of a worker's name."""
    workers = [node.name for node in driver.nodes()]
    jobs = [job.id for job in driver.jobs()]
    begun = [name for name in (*jobs, *workers) if name.startswith(wanted)]
    if not begun and "/" in wanted:
        return Subject(kind="worker", name=wanted)  # one that is gone has a story too
    name = name_of("job", begun or [*jobs, *workers], wanted)
    return Subject(kind="worker", name=name) if name in workers else Subject(kind="job", job=name)


def nothing_known(driver: Digend, subject: Subject) -> NotFound:
    """Of a subject without a transition: the error, with the nearest that there is."""
    near = get_close_matches(str(subject), _known(driver, subject), n=1, cutoff=0.0)
    hint = f"; did you mean {near[0]}?" if near else ""
    return NotFound(f"nothing is known of {subject.kind} {subject}{hint}")


def _known(driver: Digend, subject: Subject) -> list[str]:
    """Ids of the same kind, as far as they can be listed."""
    if subject.kind == "worker":
        return [node.name for node in driver.nodes()]
    if subject.kind == "policy version":
        newest = driver.job(subject.job).job.policy_version
        return [f"{subject.job}@{version}" for version in range(newest + 1)]
    job = subject.job or driver.job_id()
    tasks = [record.body for record in driver.all_records(job) if isinstance(record.body, r.TaskRecord)]
    if subject.kind == "lease":
        return [task.lease for task in tasks]
    updates = driver.updates_per_rollout(job)
    found = dict.fromkeys(
        f"{job}/{task.global_step // updates}/{task.micro_batch}" for task in tasks if task.task == "update"
    )
    return list(found)
