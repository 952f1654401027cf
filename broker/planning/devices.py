"""The places where work is done, and how long each kind of work takes there: seconds a sample.

Owns what is inferred where a time was not measured: the same device is taken to be as much faster or slower than the
others in all kinds of work. Invariant: whatever is inferred is named in `inferred`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

_COMPUTE = ("generator", "trainer")


class TimesMissing(ValueError):
    """There is nothing from which a time could be inferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`role`: generator, trainer or reward, as it is configured. Seconds a sample; None: not known.

    `update`: of a generated sample with all that is trained of it, by TSP width (timesteps a forward pass).
    `inferred`: which of these were not measured in training (generate, score, update).
    """

    name: str
    role: str
    generate: float | None = None
    score: float | None = None
    update: Mapping[int, float] = field(default_factory=dict)
    inferred: tuple[str, ...] = ()

    @property
    def generates(self) -> float:
        if self.generate is None:
            raise AssertionError(f"{self.name}: completed() infers what is missing")
        return self.generate


def completed(devices: Sequence[Device]) -> tuple[Device, ...]:
    """All times known. Raises TimesMissing where no device has one for generation, or none for updates.

    Scores that nobody took time for take none: they come with the samples.
    """
    compute = [device for device in devices if device.role in _COMPUTE]
    if not any(device.generate for device in compute):
        raise TimesMissing("no time of generation is known: generate is of a generator, assist of the trainer")
    if not any(device.update for device in compute):
        raise TimesMissing("no time of an update is known")
    usual = mean(device.generate for device in compute if device.generate)
    timed = [device if device.generate else _with(device, "generate", generate=usual) for device in compute]
    scored = [_scored(device, timed) for device in timed]
    done = {device.name: _updated(device, timed) for device in scored}
    rewards = [device for device in devices if device.role not in _COMPUTE]
    done |= {device.name: _scored_apart(device, rewards + timed) for device in rewards}
    return tuple(done[device.name] for device in devices)


def widths_of(devices: Iterable[Device]) -> list[int]:
    """TSP widths for which a time is known, the smallest first."""
    return sorted({width for device in devices for width in device.update})


def _with(device: Device, what: str, **changes: object) -> Device:
    return replace(device, **changes, inferred=(*device.inferred, what))  # type: ignore[arg-type]


def _scored(device: Device, compute: Sequence[Device]) -> Device:
    if device.score is not None:
        return device
    known = [other for other in compute if other.score is not None]
    if not known:
        return replace(device, score=0.0)
    return _with(device, "score", score=_in_proportion(device, known, lambda other: other.score or 0.0))


def _scored_apart(device: Device, others: Sequence[Device]) -> Device:
    """A reward process is like the other reward processes, or, where none was measured, like who scored."""
    if device.score is not None:
        return device
    known = [other for other in others if other.score is not None and other.role == device.role]
    known = known or [other for other in others if other.score is not None]
    if not known:
        return replace(device, score=0.0)
    return _with(device, "score", score=mean(other.score or 0.0 for other in known))


def _updated(device: Device, compute: Sequence[Device]) -> Device:
    update = dict(device.update)
    for width in widths_of(compute):
        if width not in update:
            known = [other for other in compute if width in other.update]
            update[width] = _in_proportion(device, known, lambda other, width=width: other.update[width])  # type: ignore[misc]
    inferred = set(update) != set(device.update)
    return _with(device, "update", update=update) if inferred else device


def _in_proportion(device: Device, known: Sequence[Device], value: Callable[[Device], float]) -> float:
    """As much longer than the others' as this device takes longer to generate."""
    return mean(value(other) * device.generates / other.generates for other in known)
