"""Whether a job learns anything, in words: how many of its global steps made an update, why one made none, and
whether there were differences to learn from.

Owns these words and the rule that a job without a single update has failed. Must not know how a step is closed.
Invariant: a global step made an update if, and only if, the policy version grew with it.
"""

from broker.microbatch import MicroBatch
from broker.scoring import usable
from broker.state import Job, State
from digend.wire.records import Notice

_MAX_CHARS = 160
"""Of why a sample could not be scored, inside a sentence; the warning of its micro-batch has it whole."""

_FLAT_STEPS = 2


def none_survived(batches: list[MicroBatch]) -> str:
    """Why nothing of a global step could be trained on."""
    failed, num = failures(batches), sum(sum(batch.sizes) for batch in batches)
    why = f" ({len(failed)} of {num} masked: {_short(failed[0])})" if failed else ""
    return f"no sample survived scoring{why}"


def failures(batches: list[MicroBatch]) -> list[str]:
    """Of each sample without a reward, why it has none."""
    scores = [score for batch in batches for score in batch.scores().values()]
    return [score.failure or "the reward is not finite" for score in scores if not usable(score)]


def warn_if_flat(state: State, job: Job, batches: list[MicroBatch]) -> None:
    """Say once that rewards do not differ within any group of `_FLAT_STEPS` global steps in a row. A step without a
    group that counts says nothing about that."""
    outcomes = [batch.outcome for batch in batches if batch.outcome]
    num_kept = sum(len(batch.groups) for batch in batches) - sum(len(outcome.dropped) for outcome in outcomes)
    if not num_kept or job.told_flat:
        return
    flat = sum(outcome.num_zero_std for outcome in outcomes) == num_kept
    job.num_flat = job.num_flat + 1 if flat else 0
    if job.num_flat < _FLAT_STEPS:
        return
    job.told_flat = True
    levels = {reward for outcome in outcomes for reward in outcome.rewards}
    same = (
        f"the reward was {min(levels):.4g} for every sample"
        if len(levels) == 1
        else "samples of a prompt had one reward"
    )
    message = (
        f"nothing is learnt from the reward: in {_FLAT_STEPS} global steps in a row {same}. "
        "Within a group only differences count (docs/write-a-reward.md, Before you trust it)"
    )
    state.record(job, Notice(level="warning", message=message))


def never_trained(job: Job) -> bool:
    """Whether all its global steps are over, and none of them made an update."""
    return job.global_step == job.spec.num_global_steps and _num_trained(job) == 0


def steps_trained(job: Job) -> str:
    """Of a job that is complete: `3 of 5 global steps trained`; "" where all were."""
    done = job.global_step - job.spec.first_global_step
    trained = _num_trained(job)
    return f"{trained} of {done} global steps trained" if trained < done else ""


def _num_trained(job: Job) -> int:
    """A fork's version and global step begin at those of the checkpoint that it starts from."""
    return job.version - (job.spec.origin.version if job.spec.origin else 0)


def _short(text: str) -> str:
    """On one line, for the inside of a sentence."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 3]}..."
