"""How far trained samples were from what their makers saw: by worker, by timestep, by origin; and the warning.

Owns the reading of updates' drift into figures of a global step. Invariants: bounded, whatever the number of workers
and timesteps; on samples of the weights they are trained with, anything but rounding is a fault of exactness, and is
said once for each worker.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from broker.microbatch import MicroBatch
from broker.spec import JobSpec
from broker.state import Job, State
from digend.wire.records import DriftRecord, Notice
from digend.wire.tasks import SampleDrift

MOST = 64
"""Of a kind, in one record."""
TOLERATED = 0.1
"""Share of the clip range that |log ratio| may reach before the first optimizer step."""
_ORIGINS = ("generator", "TAG")


@dataclass(slots=True)
class _Sum:
    num: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, num: int, total: float, largest: float) -> None:
        self.num += num
        self.total += total
        self.largest = max(self.largest, largest)

    def record(self, by: str, name: str) -> DriftRecord:
        mean = self.total / max(1, self.num)
        return DriftRecord(by=by, name=name, num_pairs=self.num, mean=mean, max=self.largest)  # type: ignore[arg-type]


@dataclass(slots=True)
class Drifts:
    """Of some micro-batches."""

    by: dict[str, dict[str, _Sum]] = field(default_factory=lambda: {"worker": {}, "timestep": {}, "origin": {}})
    whole: list[float] = field(default_factory=list)

    def add(self, batch: MicroBatch) -> None:
        if batch.update is None:
            return
        for worker, sample in _made(batch):
            origin = _ORIGINS[_is_trainer(worker)]
            for by, name in (("worker", worker), ("origin", origin)):
                self._of(by, name).add(sample.num_pairs, sample.sum, sample.max)
            self.whole.append(sample.whole)
        for step in batch.update.timestep_drift:
            self._of("timestep", str(step.timestep)).add(step.num_pairs, step.sum, step.max)

    def _of(self, by: str, name: str) -> _Sum:
        return self.by[by].setdefault(name, _Sum())

    def records(self) -> tuple[DriftRecord, ...]:
        """Of each kind in the order of names, numbers as numbers."""
        return tuple(record for by, sums in self.by.items() for record in _bounded(by, sums))


def drifts(batches: Iterable[MicroBatch]) -> Drifts:
    found = Drifts()
    for batch in batches:
        found.add(batch)
    return found


def _bounded(by: str, sums: dict[str, _Sum]) -> list[DriftRecord]:
    worst = sorted(sums.items(), key=lambda item: -item[1].largest)[:MOST]
    return [each.record(by, name) for name, each in sorted(worst, key=lambda item: (len(item[0]), item[0]))]


def _made(batch: MicroBatch) -> Iterator[tuple[str, SampleDrift]]:
    """Each trained sample with the worker that drew it."""
    makers = {
        (batch.groups[at].prompt.uid, batch.groups[at].samples[sample].index): fragment.worker or ""
        for (at, sample), fragment in batch.makers().items()
    }
    for sample in batch.update.sample_drift if batch.update else ():
        yield makers.get((sample.prompt, sample.index), ""), sample


def _is_trainer(worker: str) -> bool:
    return worker.split("/")[1:2] == ["trainer"]


def warn(state: State, job: Job, fresh: Sequence[MicroBatch]) -> None:
    """Of workers whose samples, of the very weights they were trained with, came out otherwise at the trainer."""
    limit, words = _limit(job.spec)
    found = drifts(fresh)
    timesteps = found.by["timestep"]
    for worker, each in sorted(found.by["worker"].items()):
        if each.largest <= limit or worker in job.drifted:
            continue
        job.drifted[worker] = None
        worst = max(timesteps, key=lambda name: timesteps[name].largest, default="?")
        state.record(
            job,
            Notice(
                level="warning",
                message=f"samples of {worker}: |log ratio| up to {each.largest:.3g} before any update of global step "
                f"{job.global_step}, more than {words}; the timestep that is furthest off is {worst}. "
                "Trainer and worker do not compute alike (dtype, batch size, attention, GPU)",
                details={"count": "drift_warnings"},
            ),
        )


def _limit(spec: JobSpec) -> tuple[float, str]:
    """What is tolerated before the first update on a rollout, and why; nothing is too much where no rule is known."""
    clip_range, rule = spec.rules.clip_range, spec.ratio_rule
    limits = [(inf, "")]
    if clip_range is not None:
        limits.append((TOLERATED * clip_range, f"{TOLERATED:g} of the clip range {clip_range:g}"))
    if rule is not None:
        limits.append((rule, f"the {rule:g} that the model's number type allows"))
    return min(limits)
