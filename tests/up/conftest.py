import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
NODE = """
name = "n"
address = "ipc://driver.sock"
state = "state"
recorder = true
[driver]
[trainer]
[generator]
slots = 2
"""


class Up:
    """An `up` process over fake programs, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = folder / "node.toml"
        self.node.write_text(NODE, encoding="utf-8")
        self.process: subprocess.Popen[str] | None = None

    def mode(self, name: str, behaviour: str) -> None:
        (self.folder / f"{name}.mode").write_text(behaviour, encoding="utf-8")

    def ready(self) -> None:
        """All its programs are at work, as far as it is told."""
        (self.folder / "ready").touch()

    def start(self, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.up.process", str(self.node), str(self.folder)],
            cwd=ROOT,
            stdin=stdin,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        return self.process

    def story(self) -> list[str]:
        file = self.folder / "story"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def starts(self, name: str) -> list[int]:
        """Process ids of a program's lives so far."""
        return [int(line.split()[2]) for line in self.story() if line.startswith(f"{name} started")]

    def wait_for(self, name: str, lives: int = 1) -> int:
        """The process id of a program's n-th life."""
        end = monotonic() + TIMEOUT_S
        while len(self.starts(name)) < lives:
            assert monotonic() < end, f"{name} was started {len(self.starts(name))} times: {self.story()}"
            sleep(0.02)
        return self.starts(name)[lives - 1]

    def ended(self) -> tuple[int, str]:
        """Exit code and log of `up`."""
        assert self.process is not None
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, log

    def close(self) -> None:
        if self.process and self.process.stderr and not self.process.stderr.closed:
            self.process.kill()
            self.process.communicate()
        for line in self.story():
            if " started " in line:
                with suppress(ProcessLookupError):
                    os.kill(int(line.split()[2]), signal.SIGKILL)


def until(holds: Callable[[], bool]) -> None:
    """Waits for something that happens within the time of a test."""
    end = monotonic() + TIMEOUT_S
    while not holds():
        assert monotonic() < end
        sleep(0.02)


def gone(pid: int) -> bool:
    """Whether a process ends within the time of a test."""
    end = monotonic() + TIMEOUT_S
    while monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        sleep(0.02)
    return False


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for Unix sockets."""
    with TemporaryDirectory(prefix="dg") as made:
        yield Path(made)


@pytest.fixture
def up(folder: Path) -> Iterator[Up]:
    made = Up(folder)
    yield made
    made.close()
