"""A stand-in for wandb, as far as the tracker uses it: runs stay in memory, steps that lie behind are ignored.

Passes the same suite as wandb itself (`tests/trackers/test_trackers.py`).
"""

from dataclasses import dataclass, field
from typing import Any

runs: dict[str, "Run"] = {}


@dataclass
class Image:
    path: str


@dataclass
class Settings:
    console: str
    silent: bool


@dataclass
class Run:
    id: str
    options: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    exit_code: int | None = None

    def define_metric(self, name: str, **options: Any) -> None:
        assert name in ("*", "global_step")

    def log(self, values: dict[str, Any], step: int) -> None:
        if step < self.step:
            return
        if self.history and self.history[-1]["_step"] == step:
            self.history[-1].update(values)
        else:
            self.history.append({**values, "_step": step})
        self.step = step

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def init(*, id: str, resume: str, **options: Any) -> Run:
    assert resume == "allow"
    run = runs.setdefault(id, Run(id, options))
    run.step += bool(run.history)
    return run
