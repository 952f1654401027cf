"""`digenctl top`: a frame of any size, the live view on a terminal, keys, a driver that goes away and comes back."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from clients.api import Digend
from clients.sparkline import sparkline
from clients.top_feed import Feed, Frame, open_piece
from clients.top_lines import KEYS, frame_lines, screen_text
from digend.wire.devices import DeviceState
from digend.wire.records import Record
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, FakeDriver, job_view, node_view
from tests.clients.test_help import HEAVY, imported_by
from tests.telemetry.test_explain import ran


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return ran("planned", num_rewards=1, steps=3).records["j1"]


@pytest.fixture
def busy(canned: Canned, records: list[Record]) -> Canned:
    """A driver in the middle of a job of the core's own, with another that waits for it."""
    canned.jobs = {
        "j1": replace(job_view("j1", "running"), global_step=3, num_global_steps=4, reward=0.7),
        "j2": job_view("j2", "queued", reason="waits for j1 to end"),
    }
    canned.records = {"j1": records[:-3]}
    canned.now_ns = records[-4].at_ns
    canned.page = 200
    idle = replace(
        node_view("n/trainer/0", "idle"), for_s=1.5, task="", cause="reward", bubble=True, reason="waits for rewards"
    )
    generator = replace(node_view("n/generator/0"), for_s=2.0, task="generate")
    canned.nodes = (generator, idle, node_view("n/reward/0"))
    return canned


@pytest.fixture
def frame(busy: Canned, driver: FakeDriver) -> Frame:
    assert busy.jobs
    with Digend(driver.address) as client:
        return Feed(20.0).look(client)


def text(frame: Frame, width: int, height: int = 1000) -> list[str]:
    return [line.plain for line in frame_lines(frame, width, height)]


def test_the_head_tells_where_tensors_wait(frame: Frame) -> None:
    waits = replace(frame, status=replace(frame.status, held_bytes=3 * 2**20, spooled_bytes=2**20))
    assert "  tensors 2.0 MiB in memory, 1.0 MiB on disk" in text(waits, 200)[0]
    assert "tensors" not in text(frame, 200)[0]


def test_a_frame_tells_driver_jobs_and_workers(frame: Frame) -> None:
    lines = text(frame, 120)
    shown = "\n".join(lines)
    assert lines[0].startswith("digend  driver epoch 3, up 12 min  SQ 0  UQ 2 (1.2 s)  bubbles 4.2 %  3 workers")
    assert "j1  running    ━━━━━━━━━━━━━━━───── 3/4" in shown
    assert "j2  queued     waits for j1 to end" in shown
    assert re.search(r"reward [▁-█]{3} -?\d\.\d{3}  policy version 7", shown)
    generator, trainer = (next(line for line in lines if line.startswith(name)) for name in ("generator", "trainer"))
    assert generator.rstrip().endswith("2.0 s  generates micro-batch 3")
    assert trainer.rstrip().endswith("1.5 s  waits for rewards")
    assert re.search(r"busy  .*█+ .* \d\.\d %", generator)
    assert "idle" in trainer
    assert re.search(r"\d bubble: reward", shown)


def test_where_only_the_recorder_has_joined_nobody_is_told_to_start_it_again(frame: Frame) -> None:
    recorder = node_view("n/recorder/0", "idle")
    alone = replace(frame, status=replace(frame.status, nodes=(recorder,)))
    assert any("no generator or trainer has joined yet" in line for line in text(alone, 120))
    nobody = replace(frame, status=replace(frame.status, nodes=()))
    assert any("digend up NODE.toml" in line for line in text(nobody, 120))


def test_what_goes_on_is_drawn_up_to_now(frame: Frame) -> None:
    last = max((piece for piece in frame.pieces if piece.worker == "n/trainer/0"), key=lambda piece: piece.end)
    assert (last.kind, last.cause, last.end) == ("bubble", "reward", frame.end_ns)
    assert last.end - last.start == 1_500_000_000
    assert open_piece(node_view("n/trainer/0"), 1) is None


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (200, 60), (8, 3), (100, 2)])
def test_any_screen_is_enough(frame: Frame, width: int, height: int) -> None:
    nodes = tuple(node_view(f"n{at}/generator/0") for at in range(30))
    crowded = replace(
        frame,
        status=replace(frame.status, nodes=nodes, problems=("disk full " * 20,) * 5),
        waiting=tuple(job_view(f"job-{at:03d}", "queued", reason="waits for its turn") for at in range(40)),
        watched=frame.watched * 3,
        away="driver away",
    )
    for each in (frame, crowded, replace(frame, watched=(), waiting=(), pieces=())):
        lines = text(each, width, height)
        assert len(lines) <= height
        assert all(len(line) <= width for line in lines), lines
        assert len(screen_text(each, width, height).renderables) == height
    assert height < 24 or "more" in "\n".join(text(crowded, width, height))


def test_a_gpu_has_its_clock_and_memory(frame: Frame) -> None:
    device = DeviceState(device="cuda:0", status="ok", age_s=0.5)
    node = replace(
        node_view("n/generator/0"), device="cuda:0", health="1410/1980 MHz, 61.2 GiB free", device_state=device
    )
    shown = "\n".join(text(replace(frame, status=replace(frame.status, nodes=(node,))), 80, 24))
    assert "n/generator/0  cuda:0: 1410/1980 MHz, 61.2 GiB free" in shown


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 5, ""),
        ([1.0], 5, "▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 2, "▁█"),
        ([0.0, float("nan"), 1.0], 3, "▁ █"),
        ([1.0, 2.0], 0, ""),
    ],
)
def test_sparklines(values: list[float], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars


def test_the_feed_begins_near_the_end_of_a_long_job(
    busy: Canned, driver: FakeDriver, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.top_feed.TAIL", 10)
    assert busy.records
    with Digend(driver.address) as client:
        feed = Feed(1000.0)
        first = feed.look(client)
        assert len(first.watched[0].rewards) <= 1
        busy.records["j1"] = records
        later = feed.look(client)
    assert len(later.pieces) <= 10 + 2
    assert max(piece.end for piece in later.pieces) >= max(piece.end for piece in first.pieces)


@pytest.mark.usefixtures("busy", "driver")
def test_once_and_for_programs(digenctl: Digenctl) -> None:
    once = digenctl("top", "--once", COLUMNS="80")
    assert once.returncode == 0
    assert "\x1b" not in once.stdout
    assert KEYS not in once.stdout
    assert all(len(line) <= 80 for line in once.stdout.splitlines())
    parsed = json.loads(digenctl("top", "--json").stdout)
    assert parsed["schema_version"] == 1
    assert {piece["worker"] for piece in parsed["pieces"]} >= {"n/generator/0", "n/trainer/0"}
    assert [len(each["rewards"]) for each in parsed["watched"]] == [3]


def test_no_driver_at_the_start(digenctl: Digenctl) -> None:
    assert digenctl("top").returncode == 69
    assert digenctl("top", "--interval", "0").returncode == 2


def test_rich_is_for_the_view_only(driver: FakeDriver) -> None:
    assert not imported_by("top", "--help") & {*HEAVY, "rich", "numpy"}
    assert not imported_by("top", "--json", "--address", driver.address) & {*HEAVY, "rich", "numpy", "jinja2"}


class Terminal:
    """digenctl top on a terminal of 80 x 24."""

    def __init__(self, folder: Path) -> None:
        import fcntl
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        ours = ("COLUMNS", "LINES", "NO_COLOR")
        clean = {name: is_ for name, is_ in os.environ.items() if name not in ours and not name.startswith("DIGEND_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clients.main", "top", "--interval", "0.1"],
            cwd=folder,
            env={**clean, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, words: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.shown:
            assert time.monotonic() < deadline, self.shown[-3000:]
            ready, _, _ = select.select([self._ours], [], [], 0.2)
            if ready:
                self.shown += os.read(self._ours, 65536).decode(errors="replace")

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self) -> int:
        """The exit code; what is shown is read on, so that the process does not wait for us."""
        while self.process.poll() is None:
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if ready:
                try:
                    self.shown += os.read(self._ours, 65536).decode(errors="replace")
                except OSError:
                    break  # Linux: how the end of a terminal reads once its last holder has gone
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    shown = Terminal(folder)
    try:
        yield shown
    finally:
        shown.close()


@pytest.mark.usefixtures("busy", "driver")
@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_a_key_leaves_and_the_jobs_go_on(tmp_path: Path, busy: Canned, key: bytes) -> None:
    with terminal(tmp_path) as view:
        view.wait_for(KEYS)
        view.press(key)
        assert view.end() == 0
        assert "\x1b[?1049h" in view.shown
        assert "\x1b[?1049l" in view.shown, "the screen is given back"
        assert "left top; jobs and workers go on" in view.shown
    assert busy.jobs["j1"].state == "running"


def test_a_driver_that_goes_away_is_waited_for(tmp_path: Path, busy: Canned) -> None:
    (tmp_path / ".digend").mkdir()
    with terminal_after(tmp_path, busy) as view:
        view.wait_for("driver away, trying again", 30)
        view.shown = ""
        busy.jobs["j1"] = replace(busy.jobs["j1"], policy_version=77)
        with FakeDriver(tmp_path / ".digend", busy):
            view.wait_for("policy version 77", 30)
            view.press(b"q")
            assert view.end() == 0


@contextmanager
def terminal_after(folder: Path, canned: Canned) -> Iterator[Terminal]:
    """A view whose driver has just gone."""
    with FakeDriver(folder / ".digend", canned):
        shown = Terminal(folder)
        shown.wait_for(KEYS)
    try:
        yield shown
    finally:
        shown.close()
