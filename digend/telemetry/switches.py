"""What a job's switches of the trainer between training and generating took, part by part. Records in, figures out.

Source: docs/scheduling.md, "Memory for TAG".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from digend.wire.records import Decision, TaskRecord
from digend.wire.tasks import LOAD, OFFLOAD, RESTORE, SWITCH_STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSum:
    """`to_generate`, `to_train`: how often training state was offloaded and restored. `offload_s`, `restore_s`: of one
    switch, `load_s`: of one TAG (each has it), medians. `seconds`: of all. `assumed_s`: c, as the last search took it
    (None: none did).
    """

    to_generate: int
    to_train: int
    offload_s: float
    load_s: float
    restore_s: float
    seconds: float
    assumed_s: float | None


def switches(tasks: Iterable[TaskRecord], decisions: Iterable[Decision]) -> SwitchSum | None:
    """None where nothing was offloaded."""
    parts: dict[str, list[int]] = {stage: [] for stage in SWITCH_STAGES}
    for task in (each for each in tasks if each.task != "evaluate"):
        for stage, ns in task.receipt.stages:
            if stage in parts:
                parts[stage].append(ns)
    if not parts[OFFLOAD] and not parts[RESTORE]:
        return None
    assumed = [decision.times_us["switch"] for decision in decisions if "switch" in decision.times_us]
    return SwitchSum(
        to_generate=len(parts[OFFLOAD]),
        to_train=len(parts[RESTORE]),
        offload_s=_seconds(parts[OFFLOAD]),
        load_s=_seconds(parts[LOAD]),
        restore_s=_seconds(parts[RESTORE]),
        seconds=sum(map(sum, parts.values())) / 1e9,
        assumed_s=assumed[-1] / 1e6 if assumed else None,
    )


def _seconds(spans_ns: list[int]) -> float:
    return median(spans_ns) / 1e9 if spans_ns else 0.0
