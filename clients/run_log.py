"""What a finished run measured: its job file, its tasks and its global steps, from runs/ID.

Reads `job.toml` and `events.jsonl`, up to the first line that is torn. Knows no driver.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from broker.planning.observed import Observed
from clients.run_events import raw_records
from digend.config.job import JobConfig
from digend.config.loader import load_job
from digend.wire.tasks import OFFLOAD, RESTORE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """`tasks` in the order in which they ended; `steps`: seconds of each global step. A width that the trainer measured
    is in `job` as a number."""

    path: str
    job: JobConfig
    tasks: tuple[Observed, ...]
    steps: tuple[float, ...]

    @property
    def seconds(self) -> float | None:
        """Of a usual global step: the first pays for what happens once."""
        return median(self.steps[1:] or self.steps) if self.steps else None


def read_run(path: str) -> RunLog:
    """Raises NotFound where there is no run, ConfigError where its job file cannot be read."""
    folder = Path(path)
    tasks: list[Observed] = []
    steps: list[float] = []
    width: int | None = None
    for record in raw_records(folder):
        if record.get("kind") == "task":
            tasks.append(_observed(record))
        elif record.get("kind") == "step":
            steps.append(float(record["seconds"]))
        elif record.get("kind") == "notice" and "timestep_width" in record.get("details", {}):
            width = int(record["details"]["timestep_width"])
    job = load_job(folder / "job.toml")
    if width is not None:
        job = job.model_copy(update={"training": job.training.model_copy(update={"timestep_width": width})})
    return RunLog(path=path, job=job, tasks=tuple(tasks), steps=tuple(steps))


def _observed(record: dict[str, Any]) -> Observed:
    gather_ns = sum(ns for stage, ns in record["receipt"]["stages"] if stage == "gather")
    switch_ns = sum(ns for stage, ns in record["receipt"]["stages"] if stage in (OFFLOAD, RESTORE))
    return Observed(
        worker=record["worker"],
        task=record["task"],
        seconds=(record["end_ns"] - record["start_ns"] - switch_ns) / 1e9,
        num_samples=record["num_samples"],
        switch=switch_ns / 1e9,
        gather=gather_ns / 1e9,
    )
