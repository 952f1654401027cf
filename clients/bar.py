"""A progress bar of global steps for a terminal, with the job's lines scrolling above it."""

from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from clients.story import metrics
from clients.words import age, number, share
from digend.wire import records as r


class Bar:
    """Used as a context manager; `add` takes records in order, `set_bubbles` a figure of the driver's status."""

    def __init__(self, job: str, num_global_steps: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self._task = self._progress.add_task(job, total=num_global_steps, figures="")
        self._figures: dict[str, str] = {}

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
            self._figures["evaluation"] = metrics(body.metrics)
        self._show()

    def set_bubbles(self, value: float | None) -> None:
        self._figures["bubbles"] = share(value)
        self._show()

    def _show(self) -> None:
        figures = "  ".join(f"{name} {value}" for name, value in self._figures.items())
        self._progress.update(self._task, figures=figures)
