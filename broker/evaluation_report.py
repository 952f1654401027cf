"""The record of a finished evaluation: means over its samples, the pictures to draw, and what came without a reward.

Owns the arithmetic of its figures; decides nothing. Invariant: a sample without a reward takes no part in any mean, and
where no sample has one there is none.
"""

from collections.abc import Iterator

from broker.learning import failures
from broker.microbatch import MicroBatch
from broker.scoring import means, usable
from broker.state import Evaluation, Job, State
from digend.wire.records import EvalGroup, EvaluationRecord
from digend.wire.tasks import SampleScore

_MAX_DRAWN_GROUPS = 64


def evaluation_record(state: State, job: Job, evaluation: Evaluation) -> EvaluationRecord:
    """All its samples are scored, or have failed to be."""
    components, _ = means(evaluation.micro_batches)
    return EvaluationRecord(
        global_step=evaluation.global_step,
        version=evaluation.stamp[1],
        incarnation=job.incarnation,
        label=evaluation.label,
        metrics={**components, **_metrics(evaluation)},
        num_samples=_num_samples(evaluation),
        num_failed=len(failures(evaluation.micro_batches)),
        seconds=(state.now - evaluation.start_ns) / 1e9,
        groups=tuple(_drawn(batch) for batch in evaluation.micro_batches[:_MAX_DRAWN_GROUPS]),
    )


def unrewarded(evaluation: Evaluation) -> str:
    """How many samples have no reward, and why the first has none, in words; "" where all have one."""
    failed = failures(evaluation.micro_batches)
    if not failed:
        return ""
    num = _num_samples(evaluation)
    none = "no reward: " if len(failed) == num else ""
    where = f"evaluation {evaluation.label} at global step {evaluation.global_step}"
    return f"{where}: {none}{len(failed)} of {num} samples failed: {failed[0]}"


def _metrics(evaluation: Evaluation) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for batch in evaluation.micro_batches:
        for metrics in batch.group_metrics.values():
            for name, value in metrics.items():
                groups.setdefault(name, []).append(value)
    rewards = [score.reward for score in _scores(evaluation) if usable(score) and score.reward is not None]
    found = {name: sum(values) / len(values) for name, values in groups.items()}
    return {**found, "reward": sum(rewards) / len(rewards)} if rewards else found


def _scores(evaluation: Evaluation) -> Iterator[SampleScore]:
    for batch in evaluation.micro_batches:
        yield from batch.scores().values()


def _num_samples(evaluation: Evaluation) -> int:
    return sum(sum(batch.sizes) for batch in evaluation.micro_batches)


def _drawn(batch: MicroBatch) -> EvalGroup:
    fragment, group = batch.fragments[0], batch.groups[0]
    if fragment.result is None:
        raise AssertionError("a scored fragment was generated")
    scores = [fragment.scores[key] for key in fragment.keys]
    return EvalGroup(
        prompt=group.prompt.uid,
        text=group.prompt.text,
        blob=fragment.result.samples,
        rewards=tuple(score.reward if usable(score) else None for score in scores),
    )
