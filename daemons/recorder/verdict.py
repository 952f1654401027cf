"""What came of a job, in sentences: the result, and what is poor about it.

Owns the words at the top of the report. Knows no markup. Invariant: generic over rewards and metrics;
whether larger is better is known of rewards only, so every evaluated figure that fell is named, whatever it
is called.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from daemons.recorder.charts import fixed, number
from daemons.recorder.lanes import duration
from daemons.recorder.sheetmap import mean
from daemons.recorder.story import Story
from digend.telemetry.figures import in_order
from digend.wire.records import EvaluationRecord
from digend.wire.views import EvaluationView, JobDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An evaluated figure before training and in the newest evaluation."""

    name: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def relative(self) -> float | None:
        return self.difference / abs(self.before) if self.before else None

    @property
    def direction(self) -> str:
        if abs(self.difference) < 5e-4 * max(abs(self.before), 1e-9):
            return "same"
        return "up" if self.difference > 0 else "down"

    @property
    def signed(self) -> str:
        """+0.130 (+18 %)"""
        sign = "+" if self.difference > 0 else "−" if self.difference < 0 else "±"
        share = "" if self.relative is None else f" ({sign}{abs(self.relative) * 100:.0f} %)"
        return f"{sign}{fixed(abs(self.difference))}{share}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChange:
    """Mean reward of one evaluation prompt, over the samples both evaluations have."""

    prompt: str
    text: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        if self.before is None or self.after is None:
            return -math.inf
        return self.after - self.before


def changes(detail: JobDetail) -> list[Change]:
    """Every metric that the first and the newest evaluation both have, the reward first. One that is the reward under
    another name (a job's only reward) is left out."""
    first = next((view for view in detail.evaluations if view.label == "before"), None)
    if first is None or len(detail.evaluations) < 2:
        return []
    old, new = first.metrics, _newest(detail.evaluations).metrics
    both = [name for name in in_order(old) if name in new and math.isfinite(old[name]) and math.isfinite(new[name])]
    found = [Change(name=name, before=old[name], after=new[name]) for name in both]
    return [change for change in found if change.name == "reward" or not _is_reward(change, found[0])]


def _is_reward(change: Change, first: Change) -> bool:
    return first.name == "reward" and (change.before, change.after) == (first.before, first.after)


def result(detail: JobDetail) -> str:
    """One sentence."""
    job = detail.job
    # A part of a scorer's opinion is named SCORER.PART; the cards below the headline have it.
    whole = [change for change in changes(detail) if "." not in change.name]
    shown = ", ".join(f"{c.name} {arrow(c.before, c.after)}" for c in whole[:4])
    work = f"{job.global_step} global steps in {duration(detail.seconds)}"
    if job.state == "completed":
        return f"{_capital(shown)}, {work}." if shown else f"Completed {work}; nothing was evaluated twice."
    if job.state == "failed":
        return f"Failed after {work}: {job.reason or 'no reason was given'}." + (f" So far {shown}." if shown else "")
    if job.state == "cancelled":
        return f"Cancelled after {work}." + (f" So far {shown}." if shown else "")
    total = f" of {job.num_global_steps}" if job.num_global_steps else ""
    sofar = f"; so far {shown}" if shown else ""
    return f"{_capital(job.state)}: {job.global_step}{total} global steps in {duration(detail.seconds)}{sofar}."


def prompt_changes(before: EvaluationRecord | None, latest: EvaluationRecord | None) -> list[PromptChange]:
    """The best change first; empty without two evaluations."""
    if before is None or latest is None or before is latest:
        return []
    known = {group.prompt: group for group in before.groups}
    found = []
    for group in latest.groups:
        if group.prompt in known:
            old = known[group.prompt].rewards
            num = min(len(old), len(group.rewards))
            found.append(
                PromptChange(
                    prompt=group.prompt,
                    text=group.text or group.prompt,
                    before=mean(old[:num]),
                    after=mean(group.rewards[:num]),
                )
            )
    return sorted(found, key=lambda change: -change.difference)


def concerns(story: Story) -> list[str]:
    """What a reader should know before believing the result; empty where nothing stood out."""
    detail = story.detail()
    found = [*_fallen(detail), *_worse_prompts(story), *_training(story), *_losses(detail), *_time(story)]
    return found + [
        f"the tracker {name} failed and the run went on without it: {why}"
        for name, why in story.tracker_troubles.items()
    ]


CHECKED = (
    "evaluated figures that fell or did not rise, prompts that got worse, rewards that ended below their best, "
    "ratios of the first micro-batch, clipping, groups without spread, masked samples, dropped groups, restarts, "
    "lost workers, failed tasks, bubbles, time that no record explains"
)


def _fallen(detail: JobDetail) -> list[str]:
    found = changes(detail)
    flat = (
        ["no evaluated figure is higher than before"] if found and not any(c.direction == "up" for c in found) else []
    )
    return flat + [
        f"{change.name} fell from {fixed(change.before)} to {fixed(change.after)}, {change.signed}"
        for change in found
        if change.direction == "down"
    ]


def _worse_prompts(story: Story) -> list[str]:
    found = prompt_changes(story.before, story.latest)
    worse = [change for change in found if change.difference < -1e-6 and math.isfinite(change.difference)]
    if not worse:
        return []
    last = worse[-1]
    return [
        f"{len(worse)} of {len(found)} prompts have a lower mean reward than before; most of all "
        f"“{last.text}”, {arrow(last.before or 0.0, last.after or 0.0)}"
    ]


def _training(story: Story) -> list[str]:
    found = []
    rewards = [(at, value) for at, value in story.curves.step_series("reward/mean") if math.isfinite(value)]
    if len(rewards) >= 5:
        at, best = max(rewards, key=lambda point: point[1])
        end = sum(value for _, value in rewards[-3:]) / 3
        if end < best - 0.1 * (best - min(value for _, value in rewards)) - 1e-9 and at < rewards[-3][0]:
            found.append(
                f"the training reward ended at {number(end)} (mean of the last three global steps), below its best, "
                f"{number(best)} at global step {number(at)}"
            )
    first = _largest(story, "train/first_max_abs_log_ratio")
    if first > 1e-4:
        found.append(
            f"|log ratio| of a step's first micro-batch reached {number(first)}: rollout and training do not agree"
        )
    clipped = _largest(story, "train/clip_fraction")
    if clipped > 0.3:
        found.append(f"up to {clipped:.0%} of the pairs of a global step were clipped")
    generated = sum(value for _, value in story.curves.step_series("groups/generated"))
    flat = sum(value for _, value in story.curves.step_series("groups/zero_std"))
    if generated and flat / generated > 0.1:
        found.append(f"{flat / generated:.0%} of the groups had no spread in reward and so no gradient")
    return found


def _losses(detail: JobDetail) -> list[str]:
    words = {
        "restarts": "restart of the trainer",
        "lost_workers": "worker lost",
        "failed_tasks": "failed task",
        "skipped_steps": "global step without an optimizer step",
        "masked_samples": "sample masked because scoring failed",
        "dropped_groups": "group dropped",
        "discarded_micro_batches": "micro-batch discarded and made again",
        "stale_micro_batches": "micro-batch one policy version old",
    }
    return [f"{detail.counters[name]} × {text}" for name, text in words.items() if detail.counters.get(name)]


def _time(story: Story) -> list[str]:
    table = story.stage_table()
    found = []
    if table.bubble_share > 0.1:
        found.append(f"{table.bubble_share:.0%} of worker time went into bubbles")
    dispatch = sum(row.get("dispatch", 0.0) for row in table.seconds.values())
    total = table.wall_s * len(table.seconds)
    if total and dispatch / total > 0.05:
        found.append(f"{dispatch / total:.0%} of worker time was spent between driver and worker (dispatch)")
    if table.unaccounted_share > 0.02:
        found.append(f"{table.unaccounted_share:.1%} of worker time is explained by no record")
    return found


def arrow(before: float, after: float) -> str:
    """Before and after on one line, whatever the width of the page."""
    return f"{fixed(before)}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{fixed(after)}"


def _largest(story: Story, name: str) -> float:
    return max((value for _, value in story.curves.step_series(name) if math.isfinite(value)), default=0.0)


def _newest(evaluations: Sequence[EvaluationView]) -> EvaluationView:
    return next((view for view in reversed(evaluations) if view.label == "after"), evaluations[-1])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
