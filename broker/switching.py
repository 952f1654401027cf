"""The trainer between training and generating: whether TAG has the memory, and what a change of mode costs.

Owns the rule of `schedule.tag_memory` and the measuring of c (docs/scheduling.md): what receipts name as offload and
restore is taken off the tasks they are part of, and adds up to c; what is loaded for each TAG anew stays part of it.
Decides no answer of a strategy.
"""

from broker.estimates import Estimate
from broker.state import Job, Lease, State, Worker
from digend.wire.tasks import OFFLOAD, RESTORE, Receipt

_STAYS = ("assist", "generate", "encode", "score", "evaluate_score")
"""Tasks after which training state may still be offloaded."""
_TO_GENERATE, _TO_TRAIN = "switch to generate", "switch to train"


def may_generate(state: State, job: Job, trainer: Worker) -> bool:
    """Whether the trainer's memory seems to suffice for TAG, in one way or the other."""
    if job.spec.tag_memory == "shared":
        return trainer.health.room(state.now, job.id)
    return trainer.health.room_offloaded(job.id)


def offloads(state: State, job: Job, trainer: Worker) -> bool:
    """Whether a rollout of the trainer that begins now makes room by offloading. A colocated job generates in each
    global step, so where it is left to the core it does so only once a rollout ran out of memory."""
    if job.spec.tag_memory != "auto":
        return job.spec.tag_memory == "offload"
    return trainer.health.has_run_out(job.id) if job.colocated else trainer.health.short(state.now, job.id)


def note_switch(job: Job, worker: Worker, lease: Lease, receipt: Receipt) -> int | None:
    """Nanoseconds of a finished task that were a switch; None where it had none."""
    stages = dict(receipt.stages)
    there, back = stages.get(OFFLOAD), stages.get(RESTORE)
    for label, ns in ((_TO_GENERATE, there), (_TO_TRAIN, back)):
        if ns is not None:
            known = worker.tasks.setdefault((job.id, _key(label, worker.offloaded)), Estimate())
            known.add(max(1, ns), 1)
    if lease.label not in _STAYS:
        worker.offloaded = False
    return None if there is None and back is None else (there or 0) + (back or 0)


def switch_ns(job: Job, trainer: Worker, offloaded: bool) -> float | None:
    """c: half of what there and back take together; of one way, where only that is known. None: neither is."""
    ways = [trainer.tasks.get((job.id, _key(label, offloaded))) for label in (_TO_GENERATE, _TO_TRAIN)]
    known = [way.ns for way in ways if way is not None and way.ns is not None]
    return sum(known) / len(known) if known else None


def num_offloads(job: Job, trainer: Worker) -> int:
    """How many were measured; the first pays for the memory that it takes."""
    known = trainer.tasks.get((job.id, _key(_TO_GENERATE, True)))
    return 0 if known is None else known.num_seen


def _key(label: str, offloaded: bool) -> str:
    return f"{label}, offloaded" if offloaded else label
