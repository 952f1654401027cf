"""From scores to what is trained on: failed samples masked, groups under quorum dropped, advantages, selection.

A failed reward is a status and never a number; advantages come from the full group, best-of-N after (paper section
3.4.1, lines 13-15). `std = "global"` is a declared barrier: nothing of a step enters UQ until all of it is scored.
"""

from collections.abc import Mapping
from math import fsum

from broker.microbatch import MicroBatch, Outcome, Phase, Selected
from broker.state import Job, State
from digend.rl.advantages import LARGEST_REWARD, AdvantageRule, GroupAdvantages, Rewards, global_std_of, normalise_group
from digend.rl.aggregation import aggregated_advantages, normalised_sum
from digend.rl.selection import select_best_of_n
from digend.wire.records import Notice
from digend.wire.tasks import SampleScore


def usable(score: SampleScore) -> bool:
    return score.failure is None and score.reward is not None and abs(score.reward) <= LARGEST_REWARD


def resolve(state: State, job: Job) -> None:
    """Move every micro-batch that is fully scored, and whose barrier has fallen, to RESOLVED or beyond."""
    if not job.scored:
        return
    batches = [batch for batch in job.barred + job.scored if batch.purpose == "train" and _waits(batch)]
    job.scored, job.barred = [], []
    if job.spec.rules.std != "global":
        for batch in batches:
            _settle(state, job, batch, None)
        return
    shared = {step: _global_std(job, step) for step in dict.fromkeys(batch.global_step for batch in batches)}
    for batch in batches:
        value = shared[batch.global_step]
        if value is None:
            job.barred.append(batch)
        elif _waits(batch):
            _settle(state, job, batch, value)


def _waits(batch: MicroBatch) -> bool:
    """Whether it is still what it was: it may have been lost since it was scored, and be made again."""
    return batch.phase is Phase.CLAIMED and batch.scored


def _global_std(job: Job, global_step: int) -> float | None:
    """One for all samples of a global step, so a micro-batch that was made again gets that of its peers."""
    peers = [peer for peer in job.rollout if peer.global_step == global_step]
    for peer in peers:
        if peer.outcome is not None:
            return peer.outcome.global_std
    if not all(peer.scored for peer in peers):
        return None
    rewards = {name: group for peer in peers for name, group in _compared(job, peer).items()}
    return global_std_of(rewards, rule_of(job))


def rule_of(job: Job) -> AdvantageRule:
    rules = job.spec.rules
    return AdvantageRule(std=rules.std, ddof=rules.ddof, eps=rules.eps, clip_max=rules.clip_max, quorum=rules.quorum)


def rewards_of(batch: MicroBatch) -> dict[str, list[float | None]]:
    """Rewards by prompt uid, in the order of the group's samples; None where a sample is masked."""
    scores = batch.scores()
    return {
        group.prompt.uid: [
            scores[at, sample].reward if usable(scores[at, sample]) else None for sample in range(len(group.samples))
        ]
        for at, group in enumerate(batch.groups)
    }


def _compared(job: Job, batch: MicroBatch) -> Mapping[str, Rewards]:
    """What is compared within each group: rewards, or the weighted sum of each reward normalised by itself."""
    if job.spec.aggregation == "reward_aggr":
        return rewards_of(batch)
    weights, scores, rule = dict(job.spec.reward_weights), batch.scores(), rule_of(job)
    found: dict[str, Rewards] = {}
    for at, group in enumerate(batch.groups):
        members = [scores[at, sample] for sample in range(len(group.samples))]
        parts = {
            label: [score.components.get(label) if usable(score) else None for score in members] for label in weights
        }
        found[group.prompt.uid] = normalised_sum(group.prompt.uid, parts, weights, rule)
    return found


def _settle(state: State, job: Job, batch: MicroBatch, global_std: float | None) -> None:
    rule = rule_of(job)
    groups = [
        aggregated_advantages(name, rewards, rule)
        if job.spec.aggregation == "advantage_aggr"
        else normalise_group(name, rewards, rule, global_std=global_std)
        for name, rewards in _compared(job, batch).items()
    ]
    batch.outcome = _outcome(job, batch, groups, global_std)
    _tell(state, job, batch, groups)
    if not batch.outcome.selected:
        # Counts as updated at once: nothing of it reaches the trainer.
        batch.phase = Phase.APPLIED
        return
    batch.phase = Phase.READY
    version = batch.stamp[1] if batch.stamp else job.version
    place = batch.index if job.spec.deterministic else None
    job.uq.push(batch, version, batch.global_step, state.now, place)


def _outcome(job: Job, batch: MicroBatch, groups: list[GroupAdvantages], global_std: float | None) -> Outcome:
    selected: list[Selected] = []
    for at, group in enumerate(groups):
        for sample in select_best_of_n(group.advantages, job.spec.rules.best_of_n):
            advantage = group.advantages[sample]
            if advantage is not None:
                selected.append(Selected(key=(at, sample), advantage=advantage))
    rewards = [reward for group in rewards_of(batch).values() for reward in group]
    return Outcome(
        selected=tuple(selected),
        num_pairs=sum(len(batch.groups[item.key[0]].samples[item.key[1]].timesteps) for item in selected),
        rewards=tuple(reward for reward in rewards if reward is not None),
        num_masked=sum(reward is None for reward in rewards),
        dropped=tuple(group.dropped for group in groups if group.dropped),
        num_zero_std=sum(group.zero_std for group in groups),
        global_std=global_std,
    )


def _tell(state: State, job: Job, batch: MicroBatch, groups: list[GroupAdvantages]) -> None:
    failures = [score for score in batch.scores().values() if not usable(score)]
    job.count("masked_samples", len(failures))
    if failures:
        first = failures[0]
        message = (
            f"{len(failures)} of {len(batch.scores())} samples masked: the first, {first.prompt}/{first.index}: "
            f"{first.failure or 'the reward is not finite'}"
        )
        state.record(job, Notice(level="warning", message=message, details={"micro_batch": str(batch.index)}))
    for group in groups:
        if group.dropped:
            job.count("dropped_groups")
            state.record(job, Notice(level="warning", message=group.dropped))


def means(batches: list[MicroBatch]) -> tuple[dict[str, float], list[float]]:
    """Mean of each component over the scored samples, and all rewards that count."""
    values: dict[str, list[float]] = {}
    for batch in batches:
        for score in batch.scores().values():
            if usable(score):
                for name, value in score.components.items():
                    if abs(value) <= LARGEST_REWARD:
                        values.setdefault(name, []).append(value)
    rewards = [reward for batch in batches if batch.outcome for reward in batch.outcome.rewards]
    return {name: fsum(parts) / len(parts) for name, parts in values.items()}, rewards
