"""A cluster of the demo's own: a node file, the `digend up` that serves it, and its end.

Reaches digend by its two command lines only, as a person does; must not know what the job is. Standard library at
import, so that `scripts/demo --help` works before anything is installed. Invariants: each cluster has its own folder
under /tmp (short, as ipc paths must be) and its own folder of runs; what was started is stopped however the block ends,
unless it is kept on purpose.
"""

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
READY_S, STOP_S, KILL_S, POLL_S = 180.0, 90.0, 5.0, 0.2

Process = subprocess.Popen[bytes]

UP = [sys.executable, "-m", "daemons.main", "up"]


class DemoFailed(Exception):
    """The message is for the person at the terminal, `code` is the demo's exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(kw_only=True)
class Cluster:
    """A running `digend up`. `keep`: whether it outlives the demo."""

    state: Path
    runs: Path
    node: Path
    up: Process
    keep: bool = False

    def run_job(self, words: Sequence[str]) -> None:
        """Submits and watches, on this terminal. Raises DemoFailed where the job does not complete."""
        watching = subprocess.Popen(self._digenctl("submit", *words, "--watch"), cwd=ROOT)
        try:
            while watching.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    watching.wait(POLL_S)
                self._require_up()
        finally:
            if watching.poll() is None:
                watching.terminate()
                watching.wait()
        if watching.returncode:
            raise DemoFailed(f"the job did not complete (digenctl ended with {watching.returncode})")

    def job(self) -> dict[str, Any]:
        """The newest job, as `digenctl show job --json` has it."""
        done = subprocess.run(self._digenctl("show", "job", "--json"), cwd=ROOT, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise DemoFailed(f"digenctl show job ended with {done.returncode}")
        detail: dict[str, Any] = json.loads(done.stdout)
        return detail

    def wait_until_ready(self) -> None:
        ready = self.state / "ready"
        wait_for(lambda: ready.exists() or self.up.poll() is not None, READY_S)
        self._require_up()
        if not ready.exists():
            raise DemoFailed(f"the cluster was not ready after {READY_S:.0f} s")

    def stop(self) -> None:
        """In order, by `digend up` itself; with force where that takes too long (a second SIGTERM, then SIGKILL)."""
        for number, seconds in ((self.up.terminate, STOP_S), (self.up.terminate, KILL_S), (self.up.kill, KILL_S)):
            if self.up.poll() is None:
                number()
                with suppress(subprocess.TimeoutExpired):
                    self.up.wait(seconds)

    def _require_up(self) -> None:
        if self.up.poll() is not None:
            raise DemoFailed(f"`digend up` ended with {self.up.returncode} before the job did")

    def _digenctl(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "clients", *words, "--node", str(self.node)]


def check_job(words: Sequence[str]) -> None:
    """Whether the job file and its changes are valid, before anything is started. Raises DemoFailed, with digenctl's
    exit code."""
    command = [sys.executable, "-m", "clients", "submit", *words, "--check"]
    code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode
    if code:
        raise DemoFailed("nothing was started", code)


@contextmanager
def running(base: Path) -> Iterator[Cluster]:
    """A cluster of the processes that the node file `base` names, ready for jobs. Its folder is removed with it, but
    stays after a DemoFailed, for the logs. From here on SIGTERM and SIGHUP end this process in order."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)
    state = Path(tempfile.mkdtemp(prefix="digend-demo-", dir="/tmp" if Path("/tmp").is_dir() else None))
    with free_runs_folder(ROOT / "runs") as runs:
        node = write_node(base, state, runs)
        cluster = Cluster(state=state, runs=runs, node=node, up=_start(node, state))
        wanted = False
        try:
            cluster.wait_until_ready()
            yield cluster
        except DemoFailed as error:
            wanted = True
            logs = f"logs are in {state}/logs, that of `digend up` is {state}/up.log"
            raise DemoFailed(f"{error}\ndemo: {logs}", error.code) from error
        finally:
            if not cluster.keep:
                cluster.stop()
            if not cluster.keep and not wanted:
                shutil.rmtree(state, ignore_errors=True)


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    """Unwinds, so that what was started is stopped."""
    sys.exit(128 + number)


def write_node(base: Path, state: Path, runs: Path) -> Path:
    """A node file like `base`, with places of its own. Returns its path."""
    import tomllib

    import tomli_w

    table = tomllib.loads(base.read_text(encoding="utf-8"))
    table |= {"address": f"ipc://{state}/driver.sock", "state": str(state), "runs": str(runs)}
    path = state / "node.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return path


@contextmanager
def free_runs_folder(runs: Path) -> Iterator[Path]:
    """`runs`, or a folder in it where another recorder writes there: only one may. Taken until the block ends."""
    number = 1
    while True:
        folder = runs if number == 1 else runs / f"parallel-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".demo.lock").open("ab") as demos, (folder / ".recorder.lock").open("ab") as recorders:
            if _lock(demos) and _lock(recorders):
                fcntl.flock(recorders, fcntl.LOCK_UN)
                yield folder
                return
        number += 1


def wait_for(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether it became so within `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _start(node: Path, state: Path) -> Process:
    """`digend up` in a session of its own: Ctrl-C reaches it through us only, after the last word about the job."""
    command = [*UP, str(node), "--ready-file", str(state / "ready")]
    with (state / "up.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _lock(file: IO[bytes]) -> bool:
    """Whether the lock on `file` was free; it is this process's now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
