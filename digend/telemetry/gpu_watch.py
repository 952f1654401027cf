"""The worker's eye on its GPU: a daemon thread that asks NVML once a second, and a reading that never waits for it.

Owns the thread and the age of what it read. Must not know what is made of it. Invariant: NVML may hang for ever; then
`state` says `stale`, returns at once all the same, and the process ends without the thread.

Tested against a fake of `libnvidia-ml.so.1` only; no GPU has seen this module.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from digend.telemetry.logs import logger
from digend.telemetry.nvml import GpuSample, NvmlAbsent, NvmlFailed, NvmlGpu
from digend.wire.devices import DeviceState

log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    """Seconds. `first_s`: opening the library wakes every GPU of the box, where nothing keeps them awake."""

    every_s: float = 1.0
    deadline_s: float = 2.0
    first_s: float = 20.0


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    sample: GpuSample
    cached_bytes: int


class GpuWatch:
    """Idle until `begin`. `state` is called from one thread, which need not be the one that began."""

    def __init__(self, timing: WatchTiming | None = None) -> None:
        self._timing = timing or WatchTiming()
        self._device = ""
        self._begun_s: float | None = None
        self._reading: _Reading | None = None
        self._absent = False
        self._stale = False

    def begin(self, device: str, gpu: str, cached_bytes: Callable[[], int] = lambda: 0) -> None:
        """Watch the GPU that NVML knows as `gpu` (see `NvmlGpu`) and torch as `device`.

        `cached_bytes` says how much memory this process's allocator keeps and does not use; it may block too.
        """
        self._device = device
        self._begun_s = time.monotonic()
        threading.Thread(target=self._watch, args=(gpu, cached_bytes), name="nvml", daemon=True).start()

    def state(self) -> DeviceState | None:
        """The newest reading with its age; None where nothing is watched, there is no NVML, or not yet an answer."""
        if self._begun_s is None or self._absent:
            return None
        reading, timing = self._reading, self._timing
        age_s = time.monotonic() - (reading.at_s if reading else self._begun_s)
        stale = age_s > (timing.every_s + timing.deadline_s if reading else timing.first_s)
        self._say(stale, age_s)
        if reading is None:
            return DeviceState(device=self._device, status="stale", age_s=round(age_s, 1)) if stale else None
        sample = reading.sample
        return DeviceState(
            device=self._device,
            status="stale" if stale else "lost" if sample.lost else "ok",
            age_s=round(age_s, 1),
            sm_clock_mhz=sample.sm_clock_mhz,
            max_sm_clock_mhz=sample.max_sm_clock_mhz,
            throttle=sample.throttle,
            free_bytes=sample.free_bytes,
            total_bytes=sample.total_bytes,
            cached_bytes=reading.cached_bytes,
            utilization=sample.utilization,
            power_w=sample.power_w,
            temperature_c=sample.temperature_c,
        )

    def _say(self, stale: bool, age_s: float) -> None:
        if stale and not self._stale:
            log.warning("NVML does not answer", device=self._device, for_s=round(age_s, 1))
        elif self._stale and not stale:
            log.info("NVML answers again", device=self._device)
        self._stale = stale

    def _watch(self, name: str, cached_bytes: Callable[[], int]) -> None:
        gpu, complaint = NvmlGpu(name), ""
        while True:
            at_s = time.monotonic()
            try:
                self._reading = _Reading(at_s, gpu.sample(), cached_bytes())
                complaint = ""
            except NvmlAbsent as absent:
                self._absent = True
                log.debug("no NVML, so nothing is known of the GPU", device=self._device, reason=str(absent))
                return
            except NvmlFailed as failed:
                if str(failed) != complaint:
                    complaint = str(failed)
                    log.warning("NVML failed, asking on", device=self._device, reason=complaint)
            time.sleep(self._timing.every_s)
