"""The record of a closed global step: what was rewarded, trained, lost, and what it cost.

Owns the arithmetic of its figures; decides nothing. Invariant: reads the state as it is at the commit and changes
nothing of it.
"""

from collections.abc import Mapping, Sequence
from math import fsum, isfinite

from broker.drift import drifts
from broker.microbatch import MicroBatch, Outcome
from broker.placement import involved
from broker.scoring import usable
from broker.state import Job, State
from broker.step_clock import NS, StepClock
from digend.wire.records import StepRecord
from digend.wire.tasks import CommitResult, UpdateResult


def step_record(
    state: State, job: Job, batches: list[MicroBatch], result: CommitResult | None, z0: int, skipped: str | None
) -> StepRecord:
    """`job.global_step` and `job.version` are already those after the step."""
    outcomes = [batch.outcome for batch in batches if batch.outcome]
    updates = [batch.update for batch in batches if batch.update]
    pairs = max(1, sum(update.num_pairs for update in updates))
    rewards = [reward for outcome in outcomes for reward in outcome.rewards]
    mean, std = mean_and_std(rewards) if rewards else (None, None)
    components = _components(batches)
    advantages = [item.advantage for outcome in outcomes for item in outcome.selected]
    advantage_mean, advantage_std = mean_and_std(advantages)
    gaps = [version_gap(job, batch, skipped) for batch in batches]
    fresh = [batch for batch, gap in zip(batches, gaps, strict=True) if not gap]
    first = [batch.update for batch in fresh if batch.update and batch.applied_first]
    clock, drifted = _up_to_now(state, job), drifts(batches)
    return StepRecord(
        global_step=job.global_step,
        version=job.version,
        incarnation=job.incarnation,
        seconds=(state.now - job.step_start_ns) * NS,
        reward_mean=mean,
        reward_std=std,
        components={name: mean_and_std(values)[0] for name, values in components.items()} | _latencies(components),
        component_stds={name: mean_and_std(values)[1] for name, values in components.items()},
        component_zero_std=_without_spread(batches, list(components)),
        num_samples=sum(sum(batch.sizes) for batch in batches),
        num_masked=sum(outcome.num_masked for outcome in outcomes),
        num_selected=sum(len(outcome.selected) for outcome in outcomes),
        num_groups=sum(len(batch.groups) for batch in batches),
        num_micro_batches=len(batches),
        num_dropped_groups=sum(len(outcome.dropped) for outcome in outcomes),
        num_zero_std_groups=sum(outcome.num_zero_std for outcome in outcomes),
        advantage_mean=advantage_mean,
        advantage_std=advantage_std,
        advantage_min=min(advantages, default=0.0),
        advantage_max=max(advantages, default=0.0),
        z0=z0,
        z=_num_pairs(outcomes),
        loss=fsum(update.loss_sum for update in updates) / pairs,
        clip_fraction=sum(update.clipped for update in updates) / pairs,
        ratio_mean=fsum(update.ratio_sum for update in updates) / pairs,
        ratio_max=max((update.ratio_max for update in updates), default=0.0),
        max_abs_log_ratio=_largest(updates),
        first_max_abs_log_ratio=_largest(first),
        kl=fsum(update.kl_sum for update in updates) / pairs,
        drift=drifted.records(),
        sequence_drift_mean=fsum(drifted.whole) / max(1, len(drifted.whole)),
        sequence_drift_max=max(drifted.whole, default=0.0),
        rejected_pairs=sum(update.rejected for update in updates),
        loss_scale=result.loss_scale if result else 1.0,
        remade_updates=sum(update.remade for update in updates),
        gradient_norm=result.gradient_norm if result else 0.0,
        learning_rate=result.learning_rate if result else 0.0,
        stale_micro_batches=sum(gap > 0 for gap in gaps),
        version_gap=sum(gaps) / max(1, len(gaps)),
        assisted_micro_batches=sum(batch.assisted for batch in batches),
        worker_seconds=clock.seconds(),
        gpu_seconds=_gpu_seconds(state, clock),
        bubble_seconds={cause: ns * NS for cause, ns in clock.bubbles_ns.items()},
        flops=dict(clock.flops),
        peak_flops=_peak(state, job, clock),
        skipped=skipped,
    )


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Of a population; zeros where there is none."""
    if not values:
        return 0.0, 0.0
    mean = fsum(values) / len(values)
    return mean, (fsum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


def _num_pairs(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.num_pairs for outcome in outcomes)


def _largest(updates: Sequence[UpdateResult]) -> float:
    return max((update.max_abs_log_ratio for update in updates), default=0.0)


def _components(batches: Sequence[MicroBatch]) -> dict[str, list[float]]:
    """Every component of every scored sample, by name."""
    values: dict[str, list[float]] = {}
    for batch in batches:
        for score in batch.scores().values():
            if usable(score):
                for name, value in score.components.items():
                    values.setdefault(name, []).append(value)
    return values


def _latencies(components: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median and 95th percentile (nearest rank) of each part named latency_s: its mean alone hides the slow ones."""
    found: dict[str, float] = {}
    for name, values in components.items():
        stem, dot, last = name.rpartition(".")
        if last == "latency_s":
            ordered = sorted(values)
            for percent in (50, 95):
                found[f"{stem}{dot}latency_p{percent}_s"] = ordered[-(-percent * len(ordered) // 100) - 1]
    return found


def _without_spread(batches: Sequence[MicroBatch], names: Sequence[str]) -> dict[str, float]:
    """Of each component the share of groups in which every scored sample has the same value."""
    flat, num = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for batch in batches:
        groups: dict[tuple[str, int], list[float]] = {}
        for (group, _), score in batch.scores().items():
            if usable(score):
                for name, value in score.components.items():
                    groups.setdefault((name, group), []).append(value)
        for (name, _), values in groups.items():
            num[name] += 1
            flat[name] += isfinite(values[0]) and min(values) == max(values)
    return {name: flat[name] / max(1, num[name]) for name in names}


def version_gap(job: Job, batch: MicroBatch, skipped: str | None) -> int:
    """By how many versions the weights that drew it are behind those that train on it."""
    trained_at = job.version if skipped else job.version - 1
    return max(0, trained_at - batch.stamp[1]) if batch.stamp is not None else 0


def _up_to_now(state: State, job: Job) -> StepClock:
    """The step's clock with what every worker is at right now."""
    clock = StepClock(
        start_ns=job.step_start_ns,
        running=True,
        worker_ns=dict(job.clock.worker_ns),
        bubbles_ns=dict(job.clock.bubbles_ns),
        flops=job.clock.flops,
    )
    for worker in state.workers.values():
        lease = state.leases.get(worker.lease or "")
        if lease is not None and lease.job == job.id:
            clock.spend(worker.name, lease.start_ns, state.now)
        elif worker.idle_since is not None and involved(job, worker):
            bubble = worker.idle_cause if worker.idle_bubble else ""
            clock.spend(worker.name, worker.idle_since, state.now, bubble)
    return clock


def _gpu_seconds(state: State, clock: StepClock) -> float:
    """Time of workers on a GPU; one that is gone by now is not known to have had one."""
    on_gpu = [worker.name for worker in state.workers.values() if worker.hello.device.startswith("cuda")]
    return sum(clock.worker_ns.get(name, 0) for name in on_gpu) * NS


def _peak(state: State, job: Job, clock: StepClock) -> float:
    """What the devices of generators and trainer could have computed meanwhile; 0 where one of them is not known."""
    total = 0.0
    for name, ns in clock.worker_ns.items():
        worker = state.workers.get(name)
        if worker is not None and worker.role == "reward":
            continue
        peak = job.peak_flops.get(name, 0.0)
        if not peak:
            return 0.0
        total += peak * ns * NS
    return total
