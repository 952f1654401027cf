"""Readings of GPUs taken into the state: estimates rescaled or doubted, what is worth a line recorded.

Decides through `device_health`. Invariant: a reading changes estimates and who is offered work, never work under way.
"""

from broker.placement import job_of
from broker.state import Lease, State, Worker
from digend.wire.devices import DeviceState
from digend.wire.records import Notice


def observe(state: State, worker: Worker, lease: Lease | None, device: DeviceState | None) -> None:
    """A heartbeat brought a reading, or none. `lease` is what the worker says it works on, where it still stands."""
    before, worker.device = worker.device, device
    if device is None:
        return
    if before is None or before.status != device.status:
        _say_status(state, worker, before, device)
    since_ns = _same_since(state, worker, lease)
    if since_ns is not None:
        worker.health.memory(state.now, device, since_ns)
    if lease is None:
        return
    verdict = worker.health.at_work(state.now, device, lease.label, lease.id, lease.start_ns)
    if verdict.factor == 1.0 and not verdict.invalid:
        return
    for estimate in worker.estimates:
        estimate.rescale(verdict.factor)
        if verdict.invalid:
            estimate.invalidate()
    what = [f"rescaled by {verdict.factor:.2f}"] if verdict.factor != 1.0 else []
    what += ["in doubt"] if verdict.invalid else []
    _note(state, worker, "info", f"times of {worker.name} {' and '.join(what)}: {verdict.why}")


def _same_since(state: State, worker: Worker, lease: Lease | None) -> int | None:
    """Since when all that training needs is on the device and nothing is generated on the side; None: it is not so."""
    if lease is None:
        return None if worker.lease is not None or worker.offloaded else worker.idle_since or 0
    if lease.label in ("assist", "prepare"):
        return None
    if not worker.offloaded:
        return lease.start_ns
    if lease.label == "update" and lease.done > 0 and worker.restored_ns < lease.start_ns:
        worker.restored_ns = state.now
    return worker.restored_ns if worker.restored_ns >= lease.start_ns else None


def _say_status(state: State, worker: Worker, before: DeviceState | None, device: DeviceState) -> None:
    if device.status == "lost":
        _note(state, worker, "error", f"{worker.name}: its GPU {device.device} is lost, it gets no more work")
    elif before is not None and before.status == "lost":
        _note(state, worker, "info", f"{worker.name}: its GPU {device.device} is back")


def _note(state: State, worker: Worker, level: str, message: str) -> None:
    job = job_of(state, worker)
    if job is not None:
        state.record(job, Notice(level=level, message=message))
