"""What it took to hand over weights and gradients: y of docs/scheduling.md part by part, and what ranks exchange for an
update. Records in, figures out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from digend.telemetry.stages import GATHER
from digend.wire.records import StagingRecord, TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSum:
    """Medians, in seconds; 0 for what never happened. Of commits: `optimizer_s` the step, `gather_s` shards are put
    together and copied, `cast_s`, `publish_s` they are offered, with what changed. Of each worker that staged a version
    `send_s` and `stage_s` (names, shapes and digests looked at), of the first task with it `swap_s`. `update_gather_s`:
    of an update, `update_share`: of all time in updates.
    """

    num_commits: int
    optimizer_s: float
    gather_s: float
    cast_s: float
    publish_s: float
    send_s: float
    stage_s: float
    swap_s: float
    update_gather_s: float
    update_share: float


def publishings(tasks: Iterable[TaskRecord], stagings: Iterable[StagingRecord]) -> PublishSum | None:
    """None before the first optimizer step."""
    done = list(tasks)
    commits = [task for task in done if task.task == "commit"]
    if not commits:
        return None
    updates = [task for task in done if task.task == "update"]
    fetched = [each for each in stagings if not each.error]
    exchanged = _spans(updates, GATHER)
    return PublishSum(
        num_commits=len(commits),
        optimizer_s=_typical(_spans(commits, "optimizer")),
        gather_s=_typical(_spans(commits, GATHER)),
        cast_s=_typical(_spans(commits, "cast")),
        publish_s=_typical(_spans(commits, "publish")),
        send_s=_typical([each.pull_ns for each in fetched]),
        stage_s=_typical([each.check_ns for each in fetched]),
        swap_s=_typical(_spans(done, "swap")),
        update_gather_s=_typical(exchanged),
        update_share=sum(exchanged) / max(1, sum(task.receipt.total_ns for task in updates)),
    )


def _spans(tasks: Iterable[TaskRecord], name: str) -> list[int]:
    """Nanoseconds of a stage, of the tasks that have it."""
    return [ns for task in tasks for stage, ns in task.receipt.stages if stage == name]


def _typical(spans_ns: list[int]) -> float:
    return median(spans_ns) / 1e9 if spans_ns else 0.0
