"""The watch of a GPU through the real nvidia-ml-py, in a process of its own, over a fake of NVML's library."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from digend.telemetry.nvml import throttle_words
from tests.telemetry.fake_nvml import FINE, LIBRARY, UUID, FakeNvml, compile_fake
from tests.telemetry.watching import DEADLINE_S, EVERY_S

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST, IN_USE, UNKNOWN = 3, 9, 15, 19, 999


class Watching:
    """The process; `log` is what it wrote to stderr, once it has ended."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.log = ""

    def ask(self) -> dict[str, Any] | None:
        """The state now. A reading never takes long."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["took_s"] < 2.0
        state: dict[str, Any] | None = answer["state"]
        return state

    def until(self, holds: Callable[[dict[str, Any] | None], bool]) -> dict[str, Any]:
        end_s = time.monotonic() + TIMEOUT_S
        while True:
            state = self.ask()
            if holds(state):
                return state or {}
            assert time.monotonic() < end_s, state

    def status(self, status: str) -> dict[str, Any]:
        return self.until(lambda state: state is not None and state["status"] == status)

    def end(self) -> int:
        """By itself, as a worker does: stdin ends, the interpreter leaves the watch's thread behind."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        assert self.process.stderr is not None
        self.log = self.process.stderr.read()
        return code


@contextmanager
def watching(fake: FakeNvml, gpu: str = "0", **environment: str) -> Iterator[Watching]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.telemetry.watching", gpu],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**fake.environment, "PYTHONWARNINGS": "error", **environment},
    ) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


def test_everything_is_read(fake_nvml: FakeNvml) -> None:
    fake_nvml.says(sm_clock=1410, reasons=0x24)
    with watching(fake_nvml) as watch:
        state = watch.status("ok")
        assert state.pop("age_s") <= EVERY_S + DEADLINE_S
        assert state == {
            "device": "cuda:0",
            "status": "ok",
            "sm_clock_mhz": 1410,
            "max_sm_clock_mhz": 1980,
            "throttle": ["power cap", "thermal"],
            "free_bytes": FINE["free"],
            "total_bytes": FINE["total"],
            "cached_bytes": 5,
            "utilization": 0.97,
            "power_w": 612.0,
            "temperature_c": 61,
        }
        assert watch.end() == 0
    assert watch.log == ""


def test_clock_drop_throttle_and_memory_are_seen_while_it_runs(fake_nvml: FakeNvml) -> None:
    with watching(fake_nvml) as watch:
        assert watch.status("ok")["throttle"] == []
        fake_nvml.says(sm_clock=990, reasons=0x40, free=2**30)
        state = watch.until(lambda state: state is not None and state["sm_clock_mhz"] == 990)
        assert state["throttle"] == ["hardware thermal"]
        assert state["free_bytes"] == 2**30
        fake_nvml.says()
        watch.until(lambda state: state is not None and state["sm_clock_mhz"] == 1980 and not state["throttle"])


@pytest.mark.parametrize("function", ["nvmlDeviceGetClockInfo", "nvmlDeviceGetMemoryInfo"])
def test_a_hang_is_stale_and_blocks_neither_reader_nor_exit(fake_nvml: FakeNvml, function: str) -> None:
    with watching(fake_nvml) as watch:
        watch.status("ok")
        fake_nvml.says(f"hang {function} 1", sm_clock=1)
        state = watch.status("stale")
        assert state["age_s"] >= EVERY_S + DEADLINE_S - 0.05
        assert state["sm_clock_mhz"] == 1980, "the last that was read"
        older = watch.until(lambda state: state is not None and state["age_s"] >= 2.0)
        assert older["status"] == "stale"
        assert watch.end() == 0
    assert watch.log.count("NVML does not answer") == 1


def test_a_hang_that_ends_is_over(fake_nvml: FakeNvml) -> None:
    with watching(fake_nvml) as watch:
        watch.status("ok")
        fake_nvml.says("hang nvmlDeviceGetTemperature 1")
        watch.status("stale")
        fake_nvml.says(sm_clock=1700)
        watch.until(lambda state: state is not None and state["status"] == "ok" and state["sm_clock_mhz"] == 1700)
        assert watch.end() == 0
    assert watch.log.count("NVML answers again") == 1


def test_a_hang_from_the_start(fake_nvml: FakeNvml) -> None:
    fake_nvml.says("hang nvmlInit 1")
    with watching(fake_nvml) as watch:
        assert watch.ask() is None
        state = watch.status("stale")
        assert state["total_bytes"] == 0
        assert watch.end() == 0


@pytest.mark.parametrize("function", ["ClockInfo", "HandleByIndex", "PowerUsage"])
def test_a_lost_gpu_is_named(fake_nvml: FakeNvml, function: str) -> None:
    fake_nvml.says(f"fail nvmlDeviceGet{function} {GPU_IS_LOST}")
    with watching(fake_nvml) as watch:
        assert watch.status("lost")["age_s"] <= EVERY_S + DEADLINE_S
        fake_nvml.says()
        watch.status("ok")
        assert watch.end() == 0


def test_an_error_that_passes(fake_nvml: FakeNvml) -> None:
    """Values age, the library is opened anew, and one line says why, one for each reason."""
    with watching(fake_nvml) as watch:
        watch.status("ok")
        fake_nvml.says(f"fail nvmlDeviceGetMemoryInfo {UNKNOWN}")
        state = watch.status("stale")
        assert state["free_bytes"] == FINE["free"]
        fake_nvml.says(f"fail nvmlInit {IN_USE}")
        older_s = state["age_s"] + 0.5
        watch.until(lambda state: state is not None and state["age_s"] >= older_s)
        fake_nvml.says()
        watch.status("ok")
        assert watch.end() == 0
    assert watch.log.count("NVML failed") == 2
    assert "Unknown Error" in watch.log


def test_what_a_gpu_does_not_tell_is_unknown(fake_nvml: FakeNvml) -> None:
    clocks = ("ClockInfo", "MaxClockInfo", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    others = ("MemoryInfo", "UtilizationRates", "PowerUsage", "Temperature")
    fake_nvml.says(*(f"fail nvmlDeviceGet{name} {NOT_SUPPORTED}" for name in clocks + others))
    with watching(fake_nvml) as watch:
        state = watch.status("ok")
        assert (state["sm_clock_mhz"], state["max_sm_clock_mhz"], state["throttle"]) == (0, 0, [])
        assert (state["free_bytes"], state["total_bytes"]) == (0, 0)
        assert (state["utilization"], state["power_w"], state["temperature_c"]) == (None, None, None)


def test_a_driver_that_knows_the_older_name_of_the_reasons(nvml_library: Path, tmp_path: Path) -> None:
    fake = FakeNvml(compile_fake(tmp_path / "old", "-DBEFORE_535"), tmp_path / "behaviour")
    fake.says(reasons=0x80)
    with watching(fake) as watch:
        assert watch.status("ok")["throttle"] == ["power brake"]


@pytest.mark.parametrize(
    ("gpu", "more"), [(UUID, ()), (f"GPU-{UUID}", ()), ("5d3c", ("uuid MIG-5d3c 1",)), ("1", ("count 2",))]
)
def test_gpus_by_uuid_slice_and_index(fake_nvml: FakeNvml, gpu: str, more: tuple[str, ...]) -> None:
    fake_nvml.says(*more)
    with watching(fake_nvml, gpu) as watch:
        assert watch.status("ok")["device"] == "cuda:0"


@pytest.mark.parametrize(
    ("gpu", "line"),
    [("0", f"fail nvmlInit {DRIVER_NOT_LOADED}"), ("7", ""), ("no-such-uuid", "")],
)
def test_no_driver_or_no_such_gpu_is_one_debug_line(fake_nvml: FakeNvml, gpu: str, line: str) -> None:
    fake_nvml.says(line)
    with watching(fake_nvml, gpu) as watch:
        _nothing_for_long(watch)
    _one_debug_line(watch.log)


def test_no_library_is_one_debug_line(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """An empty file comes before whatever library this machine has."""
    (tmp_path / LIBRARY).touch()
    with watching(fake_nvml, LD_LIBRARY_PATH=str(tmp_path)) as watch:
        _nothing_for_long(watch)
    _one_debug_line(watch.log)


def _nothing_for_long(watch: Watching) -> None:
    """Well past the time at which a library that hangs is called stale."""
    end_s = time.monotonic() + 1.3
    while time.monotonic() < end_s:
        assert watch.ask() is None
    assert watch.end() == 0


def _one_debug_line(log: str) -> None:
    assert len(log.splitlines()) == 1
    assert "debug" in log
    assert "no NVML" in log


def test_throttle_words() -> None:
    assert throttle_words(0) == ()
    assert throttle_words(0x1) == ("idle",)
    assert throttle_words(0x8 | 0x80) == ("hardware slowdown", "power brake")
    assert throttle_words(0x20 | 0x800) == ("thermal", "reason 0x800")
