"""Times of devices from the finished tasks of a run: medians, the first task of a kind left out.

Knows tasks by their labels in the record stream; reads no file. A task lasts from dispatch to result on the driver's
clock, so that what a worker waits for between two tasks is part of it. Who only generated in evaluation is compared
with the others there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from broker.planning.devices import Device

_MODES = {"assist": True, "update": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One finished task of a worker; `num_samples` is 0 where the record does not say. `switch`: seconds beside its own
    that its receipt names as a switch of mode; `gather`: of its own, those that ranks waited for each other."""

    worker: str
    task: str
    seconds: float
    num_samples: int = 0
    switch: float = 0.0
    gather: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How the run was cut: samples of a micro-batch, timesteps of a forward pass of its updates.

    `evaluation`: how many times the denoising steps of an evaluation a training sample has. `ranks`: that shared its
    updates; one of them would have generated `speed_up` times as long.
    """

    samples: int
    width: int
    evaluation: float = 1.0
    ranks: int = 1
    speed_up: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`commit`: seconds of an optimizer step with publishing; `switch`: of the trainer's change of mode."""

    devices: tuple[Device, ...]
    commit: float = 0.0
    switch: float = 0.0


def measured(tasks: Sequence[Observed], cut: Cut) -> Measured:
    """From tasks in the order in which they ended. Workers appear in the order of their first task."""
    by_worker: dict[str, list[Observed]] = {}
    for task in tasks:
        by_worker.setdefault(task.worker, []).append(task)
    devices = _compared([_device(name, its, cut) for name, its in by_worker.items()], by_worker, cut)
    trainers = [its for its in by_worker.values() if _role(its) == "trainer"]
    commits = [task.seconds for its in trainers for task in its if task.task == "commit"]
    return Measured(
        devices=devices,
        commit=_typical(commits) or 0.0,
        switch=max((_switch(its) for its in trainers), default=0.0),
    )


def merged(runs: Sequence[Measured]) -> Measured:
    """Of several runs: a later one counts where both measured the same."""
    devices: dict[str, Device] = {}
    for run in runs:
        for new in run.devices:
            old = devices.get(new.name, new)
            devices[new.name] = Device(
                name=new.name,
                role=new.role,
                generate=old.generate if new.generate is None else new.generate,
                score=old.score if new.score is None else new.score,
                update={**old.update, **new.update},
                inferred=new.inferred if new.generate is not None else old.inferred,
            )
    last = runs[-1]
    return Measured(devices=tuple(devices.values()), commit=last.commit, switch=max(run.switch for run in runs))


def _role(tasks: Iterable[Observed]) -> str:
    labels = {task.task for task in tasks}
    if labels & {"update", "commit", "assist"}:
        return "trainer"
    return "generator" if labels & {"generate", "evaluate"} else "reward"


def _device(name: str, tasks: Sequence[Observed], cut: Cut) -> Device:
    if cut.ranks > 1:
        tasks = [replace(task, seconds=task.seconds - task.gather, gather=0.0) for task in tasks]
    update = _typical([seconds for after, seconds in _updates(tasks) if after is not True])
    update = update or _typical([seconds for _, seconds in _updates(tasks)])
    assist = _a_sample(tasks, "assist")
    return Device(
        name=name,
        role=_role(tasks),
        generate=_a_sample(tasks, "generate") if assist is None else assist * cut.speed_up,
        score=_a_sample(tasks, "score"),
        update={} if update is None else {cut.width: update * cut.ranks / cut.samples},
    )


def _compared(devices: Sequence[Device], tasks: Mapping[str, Sequence[Observed]], cut: Cut) -> tuple[Device, ...]:
    """Who generated nothing for training takes as much longer than the others as it did in evaluation."""
    evaluate = {device.name: _a_sample(tasks[device.name], "evaluate") for device in devices}
    both = [device.generate / each for device in devices if device.generate and (each := evaluate[device.name])]
    scale = sum(both) / len(both) if both else cut.evaluation
    return tuple(
        replace(device, generate=each * scale, inferred=("generate",))
        if device.generate is None and (each := evaluate[device.name])
        else device
        for device in devices
    )


def _a_sample(tasks: Sequence[Observed], label: str) -> float | None:
    return _typical([task.seconds / task.num_samples for task in tasks if task.task == label and task.num_samples])


def _updates(tasks: Sequence[Observed]) -> list[tuple[bool | None, float]]:
    """(whether it followed TAG, None: it was the first; seconds) of each update."""
    found: list[tuple[bool | None, float]] = []
    generating: bool | None = None
    for task in tasks:
        if task.task == "update":
            found.append((generating, task.seconds))
        generating = _MODES.get(task.task, generating)
    return found


def _switch(tasks: Sequence[Observed]) -> float:
    """Half of what receipts name there and back, and of what an update takes longer after TAG than after another."""
    named = [_typical([task.switch for task in tasks if task.task == label and task.switch]) for label in _MODES]
    known = [seconds for seconds in named if seconds is not None]
    return (sum(known) / len(known) if known else 0.0) + _cold(tasks) / 2


def _cold(tasks: Sequence[Observed]) -> float:
    kinds: Mapping[bool, list[float]] = {True: [], False: []}
    for after, seconds in _updates(tasks):
        if after is not None:
            kinds[after].append(seconds)
    if not kinds[True] or not kinds[False]:
        return 0.0
    return max(0.0, median(kinds[True]) - median(kinds[False]))


def _typical(values: Sequence[float]) -> float | None:
    """The first pays for compilation and caches, so it never counts beside others."""
    if not values:
        return None
    return median(values[1:] or values)
