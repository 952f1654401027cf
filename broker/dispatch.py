"""One dispatch pass: every free worker is offered work, in the order reward, generator, trainer.

Who is not given anything gets a cause for its idle time. Decides through `generation`, `strategies` and the queues.
"""

from broker import requests
from broker.forecast import is_unmeasured, is_unsure, model_of, snapshot_of
from broker.generation import (
    ahead,
    claimable,
    encoded,
    holds,
    look_for_prompts,
    offer_assistance,
    offer_encoding,
    offer_evaluation,
    offer_generation,
    offer_probe,
    prepared,
    stage_weights,
    step_complete,
    switching,
    without_room,
)
from broker.leasing import grant, note_idle
from broker.microbatch import MicroBatch, Phase
from broker.placement import members, serves
from broker.portions import offer_scoring
from broker.ranks import followed, leads
from broker.schedule.choice import Choice, choose, searches
from broker.schedule.named import strategy_of
from broker.standing_in import offer_standing_in
from broker.state import Job, State, Worker
from broker.strategies import Answer, TrainerView
from broker.switching import may_generate
from digend.wire.records import Decision
from digend.wire.tasks import ResetTask

_ORDER = ("reward", "generator", "trainer")


def dispatch(state: State, job: Job) -> None:
    """Offer until nobody takes anything more, then name the causes of idle time. A full disk holds the job."""
    workers = [worker for role in _ORDER for worker in members(state, job) if worker.role == role]
    if not state.disk_full and not _winding_up(job):
        look_for_prompts(job)
        stage_weights(state, job)
        while any([offer(state, job, worker) for worker in workers if worker.free]):
            pass
    for worker in workers:
        if worker.lease is None:
            cause, bubble = idle_cause(state, job, worker)
            note_idle(state, job, worker, cause, bubble)


def _winding_up(job: Job) -> bool:
    """It is cancelled when its running leases have ended."""
    return job.stop is not None and job.stop.after == "micro-batch"


def offer(state: State, job: Job, worker: Worker) -> bool:
    """To a free worker of the job."""
    if not serves(state, job, worker):
        return False
    if job.leaving and (worker.role != "trainer" or not job.checkpoint_due):
        return False
    if worker.role == "trainer" and not leads(job, worker):
        return False
    if not prepared(job, worker):
        grant(state, job, worker, "prepare", requests.prepare(job, worker))
        return True
    if job.hold and (worker.role != "trainer" or not job.checkpoint_due):
        return False
    if worker.role == "reward":
        return offer_scoring(state, job, worker)
    if not job.sigmas or job.state == "preparing":
        return False
    if worker.role == "generator":
        return _offer_generator(state, job, worker)
    return _offer_trainer(state, job, worker)


def _offer_generator(state: State, job: Job, worker: Worker) -> bool:
    """Scoring before generation, so that the trainer gets rewards early."""
    if job.spec.scoring == "colocated" and offer_scoring(state, job, worker):
        return True
    return offer_encoding(state, job, worker) or offer_generation(state, job, worker)


def _offer_trainer(state: State, job: Job, worker: Worker) -> bool:
    if job.reset_wanted:
        grant(state, job, worker, "reset", ResetTask(job=job.id, incarnation=job.incarnation))
    elif job.checkpoint_due and state.now < job.checkpoint_from_ns:
        return False
    elif job.checkpoint_due:
        grant(state, job, worker, "checkpoint", requests.checkpoint(job))
    elif job.colocated and _offer_generator(state, job, worker):
        pass
    elif step_complete(job):
        grant(state, job, worker, "commit", requests.commit(job))
    elif offer_evaluation(state, job, worker) or (next_update(job) is None and offer_standing_in(state, job, worker)):
        pass
    else:
        return _ask_strategy(state, job, worker)
    return True


def next_update(job: Job) -> MicroBatch | None:
    """Head of UQ where it may be trained on now: of the open global step, embeddings at hand, its turn."""
    batch = job.uq.peek()
    if batch is None or batch.global_step != job.global_step or not encoded(job, batch):
        return None
    if job.spec.deterministic:
        earlier = [other for other in job.step_batches() if other.index < batch.index]
        if any(other.phase is not Phase.APPLIED for other in earlier):
            return None
    return batch


def _ask_strategy(state: State, job: Job, worker: Worker) -> bool:
    batch, pending = next_update(job), claimable(job)
    can_assist = (
        not job.spec.deterministic
        and not job.colocated
        and pending is not None
        and holds(job, worker, job.rollout_stamp)
        and may_generate(state, job, worker)
    )
    if batch is not None:
        job.trainer_waits = False
    if (batch is None and not can_assist) or job.trainer_waits:
        return False
    strategy = strategy_of(job.spec.strategy)
    model = model_of(state, job, worker) if searches(strategy) else None
    view = TrainerView(
        pending=len(job.unclaimed) if can_assist else 0,
        ready=len(job.uq) if batch is not None else 0,
        in_flight=sum(other.phase is Phase.CLAIMED for other in job.rollout),
        assisted=job.assisted,
        stale=pending is not None and ahead(job, pending),
        alone=not any(lease.job == job.id and lease.micro_batch is not None for lease in state.leases.values()),
        unmeasured=is_unmeasured(state, job, worker),
        unsure=searches(strategy) and model is None and is_unsure(job, worker),
        model=model,
        snapshot=snapshot_of(state, job, worker, model) if model is not None else None,
    )
    choice = choose(strategy, view)
    _record(state, job, view, choice)
    if choice.answer is Answer.WAIT:
        job.trainer_waits = True
        return False
    if choice.answer is Answer.TAG:
        return offer_assistance(state, job, worker)
    if choice.answer is Answer.PROBE:
        return offer_probe(state, job, worker)
    return _send_update(state, job, worker)


def _record(state: State, job: Job, view: TrainerView, choice: Choice) -> None:
    searched = choice.states > 0 and view.model is not None
    decision = Decision(
        strategy=job.spec.strategy,
        answer=choice.answer.value,
        pending=view.pending,
        ready=view.ready,
        global_step=job.global_step,
        tags=choice.tags,
        end_us=choice.end,
        without_us=choice.without,
        times_us=view.model.times.given() if searched and view.model is not None else {},
        states=choice.states,
        exhausted=choice.exhausted,
        until_step=_last_of_rollout(job),
    )
    state.record(job, decision)


def _last_of_rollout(job: Job) -> int:
    """The last global step that the open rollout feeds: searches look as far as that."""
    updates = job.spec.updates_per_rollout
    return min((job.global_step // updates + 1) * updates, job.spec.num_global_steps) - 1


def _send_update(state: State, job: Job, worker: Worker) -> bool:
    batch = job.uq.pop()
    batch.applied_first = not job.applied()
    batch.phase = Phase.UPDATING
    batch.update_lease = grant(state, job, worker, "update", requests.update(job, batch), batch).id
    return True


def idle_cause(state: State, job: Job, worker: Worker) -> tuple[str, bool]:
    """(cause in words, whether it is a bubble: idle with work of the job outstanding)."""
    if worker.session is None:
        return "driver restart", False
    if worker.torpid:
        return "torpid", False
    if not worker.able:
        return "GPU lost", False
    if lease := followed(state, job, worker):
        return f"follows {lease.label}", False
    if state.disk_full:
        return "disk full", False
    if not serves(state, job, worker):
        drain = state.drain_of(worker)
        return f"drained{drain.because}" if drain is not None else "drained", False
    if job.leaving or _winding_up(job):
        return "end of the job" if job.stop is not None and job.stop.to == "cancelled" else "pause", False
    if job.state == "preparing":
        return job.reason or "preparing", False
    if job.broken and worker.role == "trainer":
        return "a trainer rank failed", False
    if job.state == "held":
        return "held", False
    if job.evaluation is not None:
        return f"evaluation {job.evaluation.label}", False
    if job.global_step >= job.spec.num_global_steps:
        return "last checkpoint", False
    if job.checkpoint_due and worker.role != "trainer":
        return "checkpoint", False
    if worker.role == "trainer":
        return _trainer_cause(job)
    if worker.role == "reward":
        return "no sample to score", True
    if without_room(state, job, worker):
        return "no room for tensors", True
    if wanted_but_not_encoded(job):
        return "encoding of prompts", True
    if not holds(job, worker, job.stamp) or (job.unclaimed and switching(state, job, job.stamp)):
        return "weights", True
    return "update", True


def wanted_but_not_encoded(job: Job) -> bool:
    return bool(job.unclaimed) and not any(encoded(job, batch) for batch in job.unclaimed)


def _trainer_cause(job: Job) -> tuple[str, bool]:
    generated = any(
        fragment.result is not None and fragment.unscored
        for batch in job.step_batches()
        if batch.phase is Phase.CLAIMED
        for fragment in batch.fragments
    )
    return ("reward" if generated else "generation"), True
