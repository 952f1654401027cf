"""What becomes of policy versions on their way to workers: staged, or not, and the record of it.

Owns the choice of what a failed staging means. Whom to ask for it is `generation`'s. Invariant: a worker holds a
version only if it bound as many tensors as were published; each staging of an open job that ended leaves one record.
"""

from broker.broadcasts import fell_back
from broker.events import WeightsNotStaged, WeightsStaged
from broker.lifecycle import finish
from broker.losses import lose_worker
from broker.microbatch import Stamp
from broker.state import SECOND, Job, State, Worker
from digend.wire.records import StagingRecord
from digend.wire.refs import WeightsRef

_STAGE_AGAIN_NS = SECOND
_PULL_TRIES = 20


def staged(state: State, event: WeightsStaged) -> None:
    worker, job = state.by_session(event.session), state.jobs.get(event.job)
    if worker is None or job is None or not job.open:
        return
    stamp = (event.incarnation, event.version)
    asked_ns = worker.staging.pop((job.id, stamp), None)
    weights = _published(job, stamp)
    if weights is None:
        return
    if event.num_bound != weights.num_tensors:
        why = f"{worker.name} bound {event.num_bound} of {weights.num_tensors} tensors of version {event.version}"
        finish(state, job, "failed", why)
        return
    job.failures.pop(f"stage on {worker.name}", None)
    key = (job.id, stamp)
    begun_ns = asked_ns if asked_ns is not None else max(0, state.now - event.pull_ns - event.check_ns)
    if not any(key in other.staged for other in state.workers.values()):
        # The first to switch waits for the others as long again as it took itself, a second at least: a version is
        # dealt over the whole pool, and a pool is not held up by one slow link.
        job.switch_until_ns = state.now + max(SECOND, state.now - (state.now if asked_ns is None else asked_ns))
    if key not in worker.staged:
        _record(state, job, worker, weights, begun_ns, event)
        if event.fell_back:
            fell_back(state, job, worker, event)
    worker.staged[key] = None


def not_staged(state: State, event: WeightsNotStaged) -> None:
    worker, job = state.by_session(event.session), state.jobs.get(event.job)
    if worker is None or job is None or not job.open:
        return
    stamp = (event.incarnation, event.version)
    asked_ns = worker.staging.pop((job.id, stamp), state.now)
    weights = _published(job, stamp)
    if weights is None:
        return
    job.count("stage_failures")
    _record(state, job, worker, weights, asked_ns, None, event.error.message)
    if event.error.reason == "weights":
        finish(state, job, "failed", f"{worker.name}, version {event.version}: {event.error.message}")
        return
    key = f"stage on {worker.name}"
    job.failures[key] = job.failures.get(key, 0) + 1
    worker.stage_from_ns = state.now + _STAGE_AGAIN_NS
    # A blob that cannot be pulled is its owner's fault, and the owner may be about to be lost.
    tries = _PULL_TRIES if event.error.reason == "blob_lost" else job.spec.task_retries
    if job.failures[key] > tries:
        lose_worker(state, worker, f"could not stage version {event.version}: {event.error.message}")


def _published(job: Job, stamp: Stamp) -> WeightsRef | None:
    """The version, unless it is another incarnation's or not published any more."""
    weights = job.published.get(stamp[1])
    return weights if weights is not None and weights.incarnation == stamp[0] else None


def _record(
    state: State,
    job: Job,
    worker: Worker,
    weights: WeightsRef,
    start_ns: int,
    staged: WeightsStaged | None,
    error: str = "",
) -> None:
    state.record(
        job,
        StagingRecord(
            worker=worker.name,
            incarnation=weights.incarnation,
            version=weights.version,
            start_ns=start_ns,
            end_ns=state.now,
            num_bytes=weights.blob.num_bytes,
            pull_ns=staged.pull_ns if staged else 0,
            check_ns=staged.check_ns if staged else 0,
            by=staged.by if staged else "pull",
            fell_back=staged.fell_back if staged else "",
            error=error,
        ),
    )
