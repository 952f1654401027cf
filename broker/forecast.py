"""What the searching strategies are told of a live job: its times as measured, and where its open rollout stands.

Owns the translation from workers, fragments and leases to the few counts of `broker.schedule`; decides nothing. The
generator pool is one generator of the pool's speed, exact where it is a single process. Several global steps of one
rollout are planned as one, with the commits between them. Ticks are microseconds.
"""

from statistics import mean

from broker.estimates import Estimate
from broker.generation import ahead, num_stale
from broker.microbatch import Fragment, MicroBatch, Phase
from broker.placement import pool
from broker.schedule.snapshot import Model, Running, Snapshot
from broker.schedule.times import MICROSECOND, Times
from broker.state import Job, Lease, State, Worker
from broker.switching import note_switch, num_offloads, offloads, switch_ns
from digend.wire.tasks import Receipt

_PROBE, _MORE, _AFTER_TAG = "probe", "probe: one more sample", "update after TAG"
_BY_SAMPLE = ("generate", "decode")
"""Stages of a receipt that take the longer, the more samples a task has."""
_TICK_NS = 1000
_SOME = 3


def measure(job: Job, worker: Worker, lease: Lease, receipt: Receipt, num_samples: int) -> int | None:
    """A task is done. A switch of the trainer's mode is kept apart from it: what its receipt names as such, and what
    an update after TAG takes longer than others. Returned are the nanoseconds that it is thought to have taken; None:
    there was none.

    Of a probe two times are kept: its own, and what each further sample would add, by the stages of its receipt that
    grow with samples; all of it where the receipt names none.
    """
    switch = note_switch(job, worker, lease, receipt)
    label, total_ns = lease.label, receipt.total_ns - (switch or 0)
    if label not in ("generate", "assist", "score", "update", "commit"):
        return switch
    if label == "assist" and lease.micro_batch is not None and num_samples == 1 < sum(lease.micro_batch.sizes):
        label = _PROBE
    before = worker.generating
    if worker.role == "trainer" and label != "score":
        worker.generating = label in ("assist", _PROBE)
    if label == "update" and before:
        label = _AFTER_TAG
    worker.tasks.setdefault((job.id, label), Estimate()).add(total_ns, max(1, num_samples))
    if label == _PROBE:
        stages = [ns for name, ns in receipt.stages if name in _BY_SAMPLE]
        worker.tasks.setdefault((job.id, _MORE), Estimate()).add(sum(stages) or total_ns, 1)
    if label == _AFTER_TAG:
        return (switch or 0) + min(round(_cold_ns(job, worker)), total_ns)
    return switch or 0 if before != worker.generating else switch


def model_of(state: State, job: Job, trainer: Worker) -> Model | None:
    """None while a time is not known, or that of TAG only from one task: the first pays for compilation and caches, so
    that a second probe follows.
    """
    members = [worker for worker in pool(state, job) if worker.able]
    samples = job.spec.samples_per_prompt * job.spec.micro_batch_groups
    generate = _pooled(job, members, "generate")
    update = _ns(job, trainer, "update") or _ns(job, trainer, _AFTER_TAG)
    assist = _assist_ns(job, trainer, samples)
    if generate is None or update is None or assist is None or is_unmeasured(state, job, trainer):
        return None
    servers = [worker for worker in state.workers.values() if worker.role == "reward" and worker.able]
    dedicated = job.spec.scoring == "dedicated"
    score = _one(job, servers, "score") if dedicated else _pooled(job, members, "score")
    times = Times(
        generate=_ticks(generate * samples),
        assist=_ticks(assist),
        update=_ticks(update),
        score=0 if score is None else _ticks(score * samples),
        switch=round(((_named_ns(state, job, trainer) or 0) + _cold_ns(job, trainer) / 2) / _TICK_NS),
        commit=round((_ns(job, trainer, "commit") or 0) / _TICK_NS),
        unit=MICROSECOND,
    )
    return Model(times=times, servers=max(1, len(servers)) if dedicated else 0)


def is_unmeasured(state: State, job: Job, trainer: Worker) -> bool:
    """Whether TAG is known from one task at most, or offloading from one switch."""
    return _num_assisted(job, trainer) < 2 or (offloads(state, job, trainer) and num_offloads(job, trainer) < 2)


def is_unsure(job: Job, trainer: Worker) -> bool:
    """Whether TAG has been known from one task only for more than a global step."""
    waited = job.probed_at is not None and job.global_step > job.probed_at + 1
    return waited and _num_assisted(job, trainer) == 1


def _ticks(ns: float) -> int:
    return max(1, round(ns / _TICK_NS))


def _ns(job: Job, worker: Worker, label: str) -> float | None:
    """A sample, an update or a commit."""
    known = worker.tasks.get((job.id, label))
    return None if known is None else known.ns


def _num_assisted(job: Job, trainer: Worker) -> int:
    known = [trainer.tasks.get((job.id, label)) for label in ("assist", _PROBE)]
    return sum(each.num_seen for each in known if each is not None)


def _assist_ns(job: Job, trainer: Worker, samples: int) -> float | None:
    """TAG of a micro-batch: as measured on whole ones, else from probes."""
    whole = _ns(job, trainer, "assist")
    if whole is not None:
        return whole * samples
    one, more = _ns(job, trainer, _PROBE), _ns(job, trainer, _MORE)
    return None if one is None or more is None else one + min(one, more) * (samples - 1)


def _cold_ns(job: Job, trainer: Worker) -> float:
    """What an update takes longer after TAG than after an update, beside the switch that receipts name: once for there
    and back. 0 while three are not known, or where fewer than three of four take longer: updates vary."""
    plain, after = _ns(job, trainer, "update"), trainer.tasks.get((job.id, _AFTER_TAG))
    if plain is None or after is None or after.ns is None or len(after.recent) < _SOME or after.fast_ns <= plain:
        return 0.0
    return after.ns - plain


def _named_ns(state: State, job: Job, trainer: Worker) -> float | None:
    return switch_ns(job, trainer, trainer.offloaded or offloads(state, job, trainer))


def _pooled(job: Job, members: list[Worker], label: str) -> float | None:
    """Nanoseconds a sample if all work at once; a worker not yet measured is an average one."""
    known = [each for each in (_ns(job, member, label) for member in members) if each]
    if not known:
        return None
    speed = sum(1 / each for each in known) * len(members) / len(known)
    return 1 / speed


def _one(job: Job, servers: list[Worker], label: str) -> float | None:
    known = [each for each in (_ns(job, server, label) for server in servers) if each]
    return mean(known) if known else None


def snapshot_of(state: State, job: Job, trainer: Worker, model: Model) -> Snapshot | None:
    """None where micro-batches are pending and there is no generator to take them: then nothing can be foreseen.

    What a pool has begun beside its first micro-batch is taken as pending, what it scores beside it as in SQ. Of a
    rollout that feeds several global steps all is counted, also what is in UQ for one that is not open yet.
    """
    own = [batch for batch in job.rollout if not ahead(job, batch)]
    making, scoring, queued = _claimed(own)
    later_making, later_scoring, later_queued = _claimed([batch for batch in job.rollout if ahead(job, batch)])
    made_in = [_making(state, job, batch, model) for batch in making]
    scored_in = [_scoring(state, batch, model) for batch in scoring]
    later_made_in = [Running(_making(state, job, batch, model).left, later=True) for batch in later_making]
    later_scored_in = [Running(_scoring(state, batch, model).left, True, later=True) for batch in later_scoring]
    pending = sum(batch.phase is Phase.PENDING for batch in own)
    if model.servers:
        tasks, servers = made_in + later_made_in, (scored_in + later_scored_in)[: model.servers]
        queued += max(0, len(scored_in) - model.servers)
    else:
        tasks, servers = made_in + scored_in + later_made_in + later_scored_in, []
        queued += len(scored_in) if made_in else max(0, len(scored_in) - 1)
    if pending and not tasks:
        if not any(worker.able for worker in pool(state, job)):
            return None
        # It takes its new weights at this instant, and then a micro-batch.
        pending, tasks = pending - 1, [Running(model.times.generate)]
    return Snapshot(
        pending=pending + max(0, len(made_in) - 1),
        queued=queued,
        ready=sum(batch.phase is Phase.READY for batch in own),
        generator=tasks[0] if tasks else None,
        servers=tuple(servers),
        generating=trainer.generating,
        stale=max(0, job.spec.stale_quota - num_stale(job)) if _has_next(job) else 0,
        later=later_queued,
        commits=_commits(job, own),
    )


def _commits(job: Job, own: list[MicroBatch]) -> tuple[int, ...]:
    """How many updates are to be done before each commit but the last that the open rollout comes to."""
    steps = [batch.global_step for batch in own if batch.phase not in (Phase.APPLIED, Phase.UPDATING)]
    last = max(steps, default=job.global_step)
    return tuple(sum(step <= at for step in steps) for at in range(job.global_step, last))


def _has_next(job: Job) -> bool:
    return job.global_step + 1 < job.spec.num_global_steps


def _claimed(batches: list[MicroBatch]) -> tuple[list[MicroBatch], list[MicroBatch], int]:
    """Those being generated, those being scored, and how many wait for a score."""
    claimed = [batch for batch in batches if batch.phase in (Phase.CLAIMED, Phase.RESOLVED)]
    making = [batch for batch in claimed if any(fragment.result is None for fragment in batch.fragments)]
    made = [batch for batch in claimed if batch not in making]
    scoring = [batch for batch in made if any(fragment.being_scored for fragment in batch.fragments)]
    return making, scoring, len(made) - len(scoring)


def _making(state: State, job: Job, batch: MicroBatch, model: Model) -> Running:
    return Running(max(_left(state, job, each, model) for each in batch.fragments if each.result is None))


def _left(state: State, job: Job, fragment: Fragment, model: Model) -> int:
    """Ticks, from what its worker takes a sample."""
    worker = state.workers.get(fragment.worker or "")
    known = _ns(job, worker, "generate") if worker is not None else None
    whole = model.times.generate * 1.0 if known is None else known * fragment.num_samples / _TICK_NS
    lease = state.leases.get(fragment.lease or "")
    if lease is not None:
        return max(1, round(whole - (state.now - lease.start_ns) / _TICK_NS))
    return max(1, round(whole))


def _scoring(state: State, batch: MicroBatch, model: Model) -> Running:
    leases = [state.leases.get(name) for fragment in batch.fragments for name in fragment.being_scored]
    since = min((lease.start_ns for lease in leases if lease is not None), default=state.now)
    left = model.times.score - (state.now - since) // _TICK_NS
    return Running(min(max(1, left), max(1, model.times.score)), scoring=True)
