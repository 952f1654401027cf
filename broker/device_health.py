"""What a GPU's readings say of the estimates made on it: rescale them, doubt them, or leave them be. Pure.

Owns one GPU's recent readings and the clock at which its estimates were made. Must not know estimates, workers or jobs.
Invariant: one reading decides nothing; three in a row do, and only readings taken while a task ran: an idle GPU clocks
down, which says nothing of its speed.

The rules are made from NVML's documentation; no GPU has confirmed them.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from digend.wire.devices import IDLE, SLOWDOWNS, DeviceState

SECOND = 1_000_000_000
_IN_A_ROW = 3
_BAND = 0.1
"""A clock under load wanders by a few percent; that much the medians of durations absorb."""
_FRESH_S = 2.5
_APART_NS = SECOND // 2
_KNOWN_NS = 60 * SECOND
_REMEMBERED = 60
_FLOOR = 20
"""Generating takes at least one part in so many of the memory."""
_MORE = 8
"""A rollout that ran out of memory is tried again with one part in so many of the memory more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`factor`: how much longer everything takes than when it was measured. `invalid`: better measured anew."""

    factor: float = 1.0
    invalid: bool = False
    why: str = ""


NOTHING = Verdict()


@dataclass(slots=True, eq=False)
class DeviceHealth:
    """Of one worker's GPU. Clocks are kept by kind of task: each loads the GPU in its own way."""

    read_ns: int = -SECOND
    readings: dict[str, deque[int]] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    """MHz at which the estimates of a kind hold."""
    leases: dict[str, str] = field(default_factory=dict)
    reasons: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=_IN_A_ROW))
    slowdowns: tuple[str, ...] | None = None
    """Under which the estimates were made."""
    spare: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """(when, bytes), newest last."""
    total_bytes: int = 0
    needed: dict[str, int] = field(default_factory=dict)
    """By job: less than this was not enough."""
    exhausted: dict[str, None] = field(default_factory=dict)
    """Jobs for which memory did not suffice with all offloaded that can be."""

    def at_work(self, now_ns: int, device: DeviceState, kind: str, lease: str, since_ns: int) -> Verdict:
        """A reading under a lease of one kind, granted at `since_ns`."""
        at_ns = now_ns - int(device.age_s * SECOND)
        if not usable(device) or IDLE in device.throttle or at_ns < max(since_ns, self.read_ns + _APART_NS):
            return NOTHING
        self.read_ns = at_ns
        invalid = self._slowdowns_changed(device)
        factor = self._clock_ratio(device.sm_clock_mhz, kind, lease) if device.sm_clock_mhz else 1.0
        if factor == 1.0 and not invalid:
            return NOTHING
        held = ", ".join(self.slowdowns or ()) or "no slowdown"
        return Verdict(factor, invalid, f"{device.sm_clock_mhz} MHz, {held}")

    def _slowdowns_changed(self, device: DeviceState) -> bool:
        self.reasons.append(tuple(reason for reason in device.throttle if reason in SLOWDOWNS))
        now = self.reasons[-1]
        if len(self.reasons) < _IN_A_ROW or any(other != now for other in self.reasons) or now == self.slowdowns:
            return False
        known, self.slowdowns = self.slowdowns, now
        return known is not None

    def _clock_ratio(self, clock: int, kind: str, lease: str) -> float:
        new_task = self.leases.get(kind) != lease
        self.leases[kind] = lease
        recent = self.readings.setdefault(kind, deque(maxlen=_IN_A_ROW))
        recent.append(clock)
        if len(recent) < _IN_A_ROW:
            return 1.0
        middle, known = float(median(recent)), self.clocks.get(kind)
        if known is None or max(abs(each / known - 1) for each in recent) <= _BAND:
            steady = max(recent) <= min(recent) * (1 + _BAND)
            # A task of this kind has ended: the newest measurement was made at about this clock.
            if steady and (known is None or new_task):
                self.clocks[kind] = middle
            return 1.0
        if not (max(recent) < known * (1 - _BAND) or min(recent) > known * (1 + _BAND)):
            return 1.0
        factor = known / middle
        self.clocks = {name: each / factor for name, each in self.clocks.items()}
        return factor

    def memory(self, now_ns: int, device: DeviceState, since_ns: int) -> None:
        """A reading while the worker did the same since `since_ns`, be it nothing, but did not generate on the side.

        An update takes and gives back memory all the time: the most that was lately spare is there for TAG.
        """
        at_ns = now_ns - int(device.age_s * SECOND)
        if usable(device) and at_ns >= since_ns and device.total_bytes:
            self.spare.append((at_ns, device.free_bytes + device.cached_bytes))
            self.total_bytes = device.total_bytes

    def loaded(self) -> None:
        """A model is loaded: what was free before says nothing any more."""
        self.spare.clear()

    def ran_out(self, now_ns: int, job: str, *, offloaded: bool = False) -> None:
        """Generating for `job` on top of training ran out of memory, or with training state out of the way."""
        if offloaded:
            self.exhausted[job] = None
            return
        least = max(self.needed.get(job, 0), self._lately_spare(now_ns) or 0)
        self.needed[job] = least + max(self.total_bytes // _MORE, 1)

    def has_run_out(self, job: str) -> bool:
        """Whether generating for `job` on top of training ever ran out of memory here."""
        return job in self.needed

    def room(self, now_ns: int, job: str) -> bool:
        """Whether memory seems to suffice for TAG without offloading. Unknown is yes, until it ran out once."""
        return self._suffices(self._lately_spare(now_ns), job)

    def short(self, now_ns: int, job: str) -> bool:
        """Whether TAG needs room made: by the last reading, where no newer one could be taken for a while."""
        spare = self._lately_spare(now_ns)
        return not self._suffices(self.spare[-1][1] if spare is None and self.spare else spare, job)

    def room_offloaded(self, job: str) -> bool:
        """Whether memory suffices for TAG once training state is offloaded: yes, until it ran out."""
        return job not in self.exhausted

    def _suffices(self, spare: int | None, job: str) -> bool:
        if spare is None:
            return job not in self.needed
        return spare >= max(self.needed.get(job, 0), self.total_bytes // _FLOOR)

    def _lately_spare(self, now_ns: int) -> int | None:
        return max((spare for at_ns, spare in self.spare if now_ns - at_ns <= _KNOWN_NS), default=None)


def usable(device: DeviceState) -> bool:
    return device.status == "ok" and device.age_s <= _FRESH_S
