"""What a worker shows: its session, its tasks by stage, what it holds, its GPU.

Owns the translation of outcomes and readings into metrics. Knows no lease. Invariant: labels are of closed sets.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from daemons.metrics.board import Board
from daemons.metrics.families import OTHER, TASKS, WORKER
from digend.telemetry.timeline import STAGE_KINDS
from digend.wire.devices import DeviceState
from digend.wire.tasks import TASK_ERRORS, Receipt, ResultBody, TaskError

LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How a worker stands right now."""

    joined: bool
    busy: bool
    unacknowledged: int
    held_bytes: int
    spooled_bytes: int
    spool_limit_bytes: int
    resident_bytes: int
    device: DeviceState | None


class WorkerMetrics:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self.board = Board(WORKER)

    async def watch(self, look: Callable[[], Glance]) -> None:
        """For ever, once a second."""
        while True:
            self.glance(look())
            await asyncio.sleep(LOOK_S)

    def finished(self, answer: ResultBody | TaskError, receipt: Receipt) -> None:
        """A task ended, well or not."""
        if isinstance(answer, TaskError):
            reason = answer.reason if answer.reason in TASK_ERRORS else OTHER
            self.board.add("digend_task_failures", 1, reason=reason)
            return
        task = answer.kind if answer.kind in TASKS else OTHER
        self.board.add("digend_tasks", 1, task=task)
        self.board.add("digend_samples", receipt.num_samples, task=task)
        self.board.add("digend_model_flops", receipt.flops, task=task)
        for stage, ns in receipt.stages:
            self.board.add("digend_stage_seconds", ns / 1e9, stage=stage if stage in STAGE_KINDS else OTHER)
        rest = receipt.total_ns - sum(ns for _, ns in receipt.stages)
        self.board.add("digend_stage_seconds", max(0, rest) / 1e9, stage=OTHER)

    def glance(self, now: Glance) -> None:
        board = self.board
        board.set("digend_joined", now.joined)
        board.set("digend_busy", now.busy)
        board.set("digend_results_unacknowledged", now.unacknowledged)
        board.set("digend_blob_held_bytes", now.held_bytes)
        board.set("digend_blob_spooled_bytes", now.spooled_bytes)
        board.set("digend_blob_spool_limit_bytes", now.spool_limit_bytes)
        board.set("digend_resident_bytes", now.resident_bytes)
        if now.device is not None and now.device.status == "ok":
            self._device(now.device)

    def _device(self, device: DeviceState) -> None:
        self.board.set("digend_gpu_clock_hertz", device.sm_clock_mhz * 1e6)
        self.board.set("digend_gpu_free_bytes", device.free_bytes)
        for name, value in (
            ("digend_gpu_utilization_ratio", device.utilization),
            ("digend_gpu_power_watts", device.power_w),
            ("digend_gpu_temperature_celsius", device.temperature_c),
        ):
            if value is not None:
                self.board.set(name, value)
