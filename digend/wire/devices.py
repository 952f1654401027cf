"""What a worker says of its GPU, and the words for why a GPU's clock is held down.

Owns the shape that travels with heartbeats. Must not know NVML: `digend.telemetry.nvml` reads it. Invariant: numbers
that the GPU does not tell are 0 (memory, clocks) or None.
"""

from dataclasses import dataclass
from typing import Literal

DeviceStatus = Literal["ok", "stale", "lost"]
"""stale: NVML has not answered in time, the numbers are `age_s` old. lost: the GPU is gone from the bus."""

IDLE = "idle"
POWER_CAP = "power cap"
THERMAL = "thermal"
HARDWARE_THERMAL = "hardware thermal"
HARDWARE_SLOWDOWN = "hardware slowdown"
POWER_BRAKE = "power brake"

SLOWDOWNS = (THERMAL, HARDWARE_THERMAL, HARDWARE_SLOWDOWN, POWER_BRAKE)
"""Reasons that say something is wrong. A power cap is how every busy GPU runs: its clock tells what that costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Of one GPU, about once a second. `throttle` has the clocks event reasons in words."""

    device: str
    status: DeviceStatus
    age_s: float
    """Since the numbers were read."""
    sm_clock_mhz: int = 0
    max_sm_clock_mhz: int = 0
    throttle: tuple[str, ...] = ()
    free_bytes: int = 0
    total_bytes: int = 0
    cached_bytes: int = 0
    """Held by this process's allocator and not in use: as good as free, to this process."""
    utilization: float | None = None
    """Share of the last period in which a kernel ran."""
    power_w: float | None = None
    temperature_c: int | None = None
