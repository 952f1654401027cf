"""A progress bar of global steps for a terminal, with the job's lines scrolling above it."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from clients.story import metrics
from clients.words import age, number, share
from digend.telemetry.figures import in_order
from digend.wire import records as r

BAR_WIDTH = 20
FIGURES = ("reward", "evaluation", "a step", "bubbles", "version")
"""Beside the bar; the first are the last to go where there is no room."""


class Bar:
    """Used as a context manager; `add` takes records in order, `set_bubbles` a figure of the driver's status."""

    def __init__(self, job: str, num_global_steps: int, console: Console | None = None) -> None:
        figures = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # gives way to all before it on a narrow terminal
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(BAR_WIDTH),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("left", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[figures]}", table_column=figures),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task(job, total=num_global_steps, figures="")
        self._figures = dict.fromkeys(FIGURES, "")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)

    def add(self, body: object) -> None:
        """Moves the bar and renews the figures where a record has any."""
        if isinstance(body, r.StepRecord):
            self._figures["reward"] = number(body.reward_mean)
            self._figures["a step"] = age(body.seconds)
            self._figures["version"] = str(body.version)
            self._progress.update(self._task, completed=body.global_step)
        elif isinstance(body, r.RestartRecord):
            self._progress.update(self._task, completed=body.global_step)
        elif isinstance(body, r.EvaluationRecord):
            first = in_order(body.metrics)[:1]  # the line above the bar has them all
            self._figures["evaluation"] = metrics({name: body.metrics[name] for name in first})
        self._show()

    def set_bubbles(self, value: float | None) -> None:
        self._figures["bubbles"] = share(value)
        self._show()

    def _show(self) -> None:
        figures = "  ".join(f"{name} {value}" for name, value in self._figures.items() if value)
        self._progress.update(self._task, figures=figures)
