"""The table of seconds by stage and worker, in rows a person reads: work, pauses, waiting, and what is
left.

Owns order and grouping. Invariant: every stage of the table is in exactly one row, so that the columns
still sum to wall time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from digend.telemetry.stages import ABSENT, OTHER, UPDATE_GATHER, StageTable, followed


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """`seconds` has one cell a worker; `share` is of wall time x workers. `kind` is a colour of the
    timeline.
    """

    stage: str
    group: str
    kind: str
    seconds: tuple[float, ...]
    total: float
    share: float


_PAUSES = ("load", "evaluate", "checkpoint")
_GROUPS = ("work", "pause", "overhead", "idle", "bubble")
_GROUP_OF = {**dict.fromkeys(_PAUSES, "pause"), "dispatch": "overhead", OTHER: "overhead", ABSENT: "idle"}
_COLOURS = {
    "encode",
    "generate",
    "decode",
    "score",
    "update",
    "optimizer",
    "publish",
    "switch",
    "stage",
    "fetch",
    "load",
    "evaluate",
    "checkpoint",
}


def stage_rows(table: StageTable) -> list[StageRow]:
    """Largest first within each group: work, pauses, overhead, idle, bubbles."""
    workers = list(table.seconds)
    whole = table.wall_s * len(workers)
    rows = []
    for stage in sorted({stage for row in table.seconds.values() for stage in row}):
        seconds = tuple(table.seconds[worker].get(stage, 0.0) for worker in workers)
        rows.append(
            StageRow(
                stage=stage.replace("assist_", "assist: ").replace("update_", "update: "),
                group=_group(stage),
                kind=_colour(stage),
                seconds=seconds,
                total=sum(seconds),
                share=sum(seconds) / whole if whole else 0.0,
            )
        )
    return sorted(rows, key=lambda row: (_GROUPS.index(row.group), -row.total))


def column_sums(table: StageTable) -> dict[str, float]:
    """Seconds accounted for, a worker; equal to the wall time up to overlapping records."""
    return {worker: sum(row.values()) for worker, row in table.seconds.items()}


def group_shares(rows: Sequence[StageRow]) -> list[tuple[str, float]]:
    """Share of each group, in their order; groups without time are left out."""
    shares: dict[str, float] = {}
    for row in rows:
        shares[row.group] = shares.get(row.group, 0.0) + row.share
    return [(group, shares[group]) for group in _GROUPS if shares.get(group, 0.0) > 0]


def _group(stage: str) -> str:
    if stage.startswith("bubble"):
        return "bubble"
    if stage.startswith("idle"):
        return "idle"
    return _GROUP_OF.get(followed(stage) or stage, "work")


def _colour(stage: str) -> str:
    stage = followed(stage) or stage
    if stage.startswith("assist_"):
        return "assist"
    if stage in (UPDATE_GATHER, "measure"):
        return "update"
    if stage in ("swap", "gather", "cast"):
        return "stage" if stage == "swap" else "publish"
    return stage if stage in _COLOURS else {"idle": "idle", "bubble": "bubble"}.get(_group(stage), OTHER)
