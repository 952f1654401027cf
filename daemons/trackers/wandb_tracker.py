"""Weights & Biases. The only module that imports wandb, and only when a job asks for it.

Owns the names under which a run appears there: the job's id is the run's id, so that a recorder that starts again goes
on with it. Steps of its axis are record numbers, which only grow; what is behind the run's own step is there already.
Global steps are the x axis of every figure.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daemons.trackers.protocol import TrackedRun
from digend.config.tracking import TrackingConfig
from digend.telemetry.figures import figures
from digend.wire.records import EvaluationRecord, Record, StepRecord

MISSING = "tracking.use: wandb is not installed where the recorder runs: pip install 'digend[wandb]'"


class WandbTracker:
    """Raises whatever wandb raises."""

    def __init__(self, config: TrackingConfig) -> None:
        self._config = config
        self._wandb: Any = None
        self._run: Any = None

    def start(self, run: TrackedRun, past: Sequence[Record]) -> None:
        """`WANDB_MODE` and the other variables of wandb hold where the job file does not say otherwise."""
        if not is_installed():
            raise RuntimeError(MISSING)
        self._wandb = import_module("wandb")
        self._run = self._wandb.init(
            project=self._config.project,
            entity=self._config.entity,
            mode=self._config.mode,
            id=run.job,
            name=run.job,
            group=run.name,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.config),
            settings=self._wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("global_step", hidden=True)
        self._run.define_metric("*", step_metric="global_step")
        self.log([record for record in past if record.seq >= self._run.step])

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.body, StepRecord | EvaluationRecord):
                values = {**figures(record.body), "global_step": record.body.global_step}
                self._run.log(values, step=record.seq)

    def image(self, name: str, path: Path, record: Record) -> None:
        self._run.log({f"samples/{name}": self._wandb.Image(str(path))}, step=record.seq)

    def finish(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "completed" else 1)


def is_installed() -> bool:
    """Whether wandb can be imported; it is not imported to find out."""
    try:
        return find_spec("wandb") is not None
    except ValueError:  # it was put into sys.modules by hand
        return True
