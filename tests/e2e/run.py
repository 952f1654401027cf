"""A run folder as tests read it, and what must be true of any: nothing trained twice, no record missing.

Reads only what is in the folder, through the recorder's own reader.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from daemons.recorder.eventlog import read_events
from digend.telemetry.stages import stage_table
from digend.wire.records import EvaluationRecord, Notice, Record, RestartRecord, StepRecord, TaskRecord

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path

    @property
    def records(self) -> list[Record]:
        return list(read_events(self.folder / "events.jsonl"))

    def bodies(self, kind: type[Body]) -> list[Body]:
        return [record.body for record in self.records if isinstance(record.body, kind)]

    @property
    def steps(self) -> list[StepRecord]:
        return self.bodies(StepRecord)

    @property
    def evaluations(self) -> list[EvaluationRecord]:
        return self.bodies(EvaluationRecord)

    @property
    def summary(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "summary.json").read_bytes())
        return document

    @property
    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.summary["counters"]
        return counters

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text("utf-8").splitlines()]

    def notices(self) -> str:
        return "\n".join(notice.message for notice in self.bodies(Notice))

    def num_told(self) -> int:
        """Records that the summary vouches for; -1 while there is none."""
        try:
            return int(self.summary["num_records"])
        except (OSError, ValueError, KeyError):
            return -1

    def weights(self) -> bytes:
        """The last checkpoint's trainable parameters."""
        newest = max((self.folder / "checkpoints").glob("step-*"))
        return (newest / "weights.safetensors").read_bytes()


def assert_counted_once(run: Run, num_global_steps: int) -> None:
    """Every closed global step was made of each of its micro-batches once, and of as many samples as it says.

    What an update added before the gradients were dropped (a reset, a new incarnation) does not count.
    """
    done, applied = 0, dict[int, int]()
    records = run.records
    assert [record.seq for record in records] == list(range(len(records)))
    for body in (record.body for record in records):
        if isinstance(body, TaskRecord) and body.task == "update":
            assert body.global_step == done
            assert body.micro_batch not in applied, f"micro-batch {body.micro_batch} twice in step {done}"
            applied[body.micro_batch] = body.receipt.num_samples
        elif isinstance(body, StepRecord):
            assert body.global_step == done + 1
            assert sum(applied.values()) == body.num_selected
            done, applied = body.global_step, {}
        elif isinstance(body, RestartRecord):
            assert body.global_step <= done
            done, applied = body.global_step, {}
        elif isinstance(body, Notice) and body.message.startswith("gradients of global step"):
            applied = {}
    assert done == num_global_steps


def assert_time_is_accounted_for(run: Run, *workers: str) -> None:
    """Seconds by stage and worker sum to wall time x workers within 2 %, and so does what has a name."""
    table = stage_table(run.records)
    assert set(table.seconds) == set(workers)
    total = sum(sum(row.values()) for row in table.seconds.values())
    assert abs(total - table.wall_s * len(workers)) <= 0.02 * table.wall_s * len(workers)
    assert table.unaccounted_share <= 0.02, table.seconds
