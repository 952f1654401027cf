"""One GPU as NVML describes it, through nvidia-ml-py. Blocking: any call here may hang for ever, so see `gpu_watch`.

Owns the library's session and what its errors mean. Must not know workers or schedules. Invariant: what a GPU does not
support (a slice of one tells no clock) is 0 or None, never an error.

Tested against a fake of `libnvidia-ml.so.1` only; no GPU has seen this module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from digend.wire.devices import (
    HARDWARE_SLOWDOWN,
    HARDWARE_THERMAL,
    IDLE,
    POWER_BRAKE,
    POWER_CAP,
    THERMAL,
)

T = TypeVar("T")

REASONS = {
    0x001: IDLE,
    0x002: "application clocks",
    0x004: POWER_CAP,
    0x008: HARDWARE_SLOWDOWN,
    0x010: "sync boost",
    0x020: THERMAL,
    0x040: HARDWARE_THERMAL,
    0x080: POWER_BRAKE,
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""nvml.h: nvmlClocksEventReasons, the two last as nvmlClocksThrottleReasons."""

_UNTOLD = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
)
_ABSENT = (
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    *_UNTOLD,
)


class NvmlAbsent(Exception):
    """No library, no driver, or no such GPU: asking again is of no use."""


class NvmlFailed(Exception):
    """An error that may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading. Clocks in MHz. `lost`: the GPU is gone from the bus, and nothing else is known."""

    lost: bool = False
    sm_clock_mhz: int = 0
    max_sm_clock_mhz: int = 0
    throttle: tuple[str, ...] = ()
    free_bytes: int = 0
    total_bytes: int = 0
    utilization: float | None = None
    power_w: float | None = None
    temperature_c: int | None = None


class NvmlGpu:
    """`name`: NVML's index of the GPU, or its UUID with or without the prefix. Confined to one thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open = False
        self._seen = False
        self._handle: Any = None

    def sample(self) -> GpuSample:
        """Reads everything once; opens the library where that is still to be done.

        Raises NvmlAbsent, NvmlFailed. After NvmlFailed the library is opened anew.
        """
        try:
            if self._handle is None:
                self._handle = self._find()
            taken = _read(self._handle)
        except pynvml.NVMLError as error:
            return self._explain(error)
        self._seen = True
        return taken

    def _find(self) -> Any:
        if not self._open:
            pynvml.nvmlInit()
            self._open = True
        if self._name.isdecimal():
            return pynvml.nvmlDeviceGetHandleByIndex(int(self._name))
        if "-" in self._name and self._name.split("-")[0] in ("GPU", "MIG"):
            return pynvml.nvmlDeviceGetHandleByUUID(self._name)
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{self._name}")
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                raise
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{self._name}")

    def _explain(self, error: "pynvml.NVMLError") -> GpuSample:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            self._seen = True
            return GpuSample(lost=True)
        self._close()
        if not self._seen and error.value in _ABSENT:
            raise NvmlAbsent(str(error)) from None
        raise NvmlFailed(str(error)) from None

    def _close(self) -> None:
        self._handle = None
        if self._open:
            self._open = False
            _told(pynvml.nvmlShutdown, None, anything=True)


def throttle_words(mask: int) -> tuple[str, ...]:
    """Clocks event reasons in words, lowest bit first; unknown bits by number."""
    bits = (1 << position for position in range(mask.bit_length()))
    return tuple(REASONS.get(bit, f"reason {bit:#x}") for bit in bits if mask & bit)


def _read(handle: Any) -> GpuSample:
    memory = _told(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle), None)
    utilization = _told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, None)
    power = _told(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, None)
    return GpuSample(
        sm_clock_mhz=_told(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), 0),
        max_sm_clock_mhz=_told(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM), 0),
        throttle=throttle_words(_reasons(handle)),
        free_bytes=memory.free if memory else 0,
        total_bytes=memory.total if memory else 0,
        utilization=utilization,
        power_w=power,
        temperature_c=_told(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU), None),
    )


def _reasons(handle: Any) -> int:
    """Drivers before 535 know the function by its older name only."""
    new = _told(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle), None)
    return _told(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), 0) if new is None else new


def _told(read: Callable[[], T], otherwise: T, *, anything: bool = False) -> T:
    """What `read` gives; `otherwise` where this GPU does not tell it."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if anything or error.value in _UNTOLD:
            return otherwise
        raise
