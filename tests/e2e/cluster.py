"""A cluster of real processes for tests: a node file of its own, `digend up`, and the ways in that a person has.

Owns the processes and their folder (short, as ipc paths must be). Knows jobs by their id only. Invariant: nothing it
started outlives `stop`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from clients.api import FINAL_STATES, Digend
from digend.exitcodes import ExitCode
from digend.net.client import ClientError
from digend.wire.views import JobView
from tests.e2e.run import Run

ROOT = Path(__file__).parents[2]
JOB = ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml"
KEEP = bool(os.environ.get("DIGEND_KEEP_CLUSTERS"))
"""Whether folders stay, with journals, logs and runs, to see what went wrong."""
PATIENCE_S = 180.0
"""For anything that ends by itself; machines may be busy with other things."""

ALL_ROLES = {
    "driver": {},
    "recorder": True,
    "trainer": {"device": "cpu"},
    "generator": {"slots": 2, "devices": ["cpu", "cpu"]},
    "reward": {"slots": 1, "devices": ["cpu"]},
    "metrics": {},
}


def environment(**more: str) -> dict[str, str]:
    """What every process of a test gets: no network, one thread."""
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **quiet, **more}


def with_packages(packages: Sequence[Path]) -> dict[str, str]:
    """The same with folders like site-packages."""
    return environment(PYTHONPATH=os.pathsep.join(str(path) for path in (ROOT, *packages)))


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Asks again and again; other processes tell nobody when they are done."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds:g} s: {what}")
        time.sleep(0.05)


@dataclass(kw_only=True)
class Cluster:
    """A running `digend up`. `driver` is a client of it, for the test's own thread."""

    folder: Path
    up: subprocess.Popen[bytes]
    driver: Digend
    short: tuple[str, ...]
    """Overrides that make the demo's job short."""
    packages: tuple[Path, ...] = ()

    @property
    def node_file(self) -> Path:
        return self.folder / "node.toml"

    @property
    def address(self) -> str:
        return f"ipc://{self.folder}/driver.sock"

    @property
    def journal(self) -> Path:
        return self.folder / "state" / "driver.sqlite"

    def ctl(self, *words: str, code: int = ExitCode.OK) -> "subprocess.CompletedProcess[str]":
        """digenctl, which must end with `code`."""
        return digenctl(*words, "--node", str(self.node_file), code=code, packages=self.packages)

    def submit(self, job: str, *overrides: str) -> None:
        """A short job, under an id."""
        assert self.driver.submit(JOB, job=job, overrides=(*self.short, *overrides)).created

    def run(self, job: str, *overrides: str) -> Run:
        """A short job from submit to completion."""
        self.submit(job, *overrides)
        return self.completed(job)

    def completed(self, job: str) -> Run:
        """The run folder of a job, once it is over and the recorder has written all of it."""
        return self.over(job, "completed")

    def over(self, job: str, state: str) -> Run:
        """The same of a job that ends in another state."""
        view = self.driver.wait(job, PATIENCE_S)
        assert view.state == state, f"{view.state}: {view.reason}\n{self.log_tail()}"
        run = Run(self.folder / "runs" / job)
        records = self.driver.job(job).num_records
        wait_until(lambda: run.num_told() == records, f"the recorder has told all {records} records of {job}")
        return run

    def reached(self, job: str, global_step: int) -> None:
        """Waits until so many global steps are done; the job must still run then."""
        self.sees(job, lambda view: view.global_step >= global_step, f"{job} at global step {global_step}")

    def sees(self, job: str, holds: Callable[[JobView], bool], what: str) -> None:
        """Waits until it holds of a job that is not over."""

        def is_so() -> bool:
            view = self.driver.job(job).job
            assert view.state not in FINAL_STATES, f"{view.state} ({view.reason}) and never: {what}"
            return holds(view)

        wait_until(is_so, what)

    def pid(self, program: str) -> int:
        """Process of `driver`, `recorder`, `trainer`, `generator-1`, ... as it is now."""
        role, _, slot = program.partition("-")
        found = [pid for pid, words in _children(self.up.pid) if role in words and (not slot or words[-1] == slot)]
        assert len(found) == 1, f"{program}: {found}"
        return found[0]

    def kill(self, program: str) -> int:
        """kill -9; returns the process id it had."""
        pid = self.pid(program)
        os.kill(pid, signal.SIGKILL)
        return pid

    def replaced(self, program: str, pid: int) -> None:
        """Waits until `digend up` has started another process for it."""
        wait_until(lambda: self._now_running(program) not in (None, pid), f"{program} was started again")

    def all_present(self, num_workers: int) -> None:
        """Waits until so many workers (and the recorder) have a session and none is slow."""
        fine = ("idle", "busy")
        wait_until(
            lambda: sum(node.state in fine for node in self.driver.nodes()) == num_workers,
            f"{num_workers} are there",
            60.0,
        )

    def log_tail(self) -> str:
        return "\n".join((self.folder / "up.log").read_text("utf-8", "replace").splitlines()[-40:])

    def start_again(self) -> None:
        """Another `digend up` of the same node, once the one before has ended."""
        (self.folder / "ready").unlink(missing_ok=True)
        self.up = _start(self.folder, self.packages)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        ready = self.folder / "ready"
        wait_until(lambda: ready.exists() or self.up.poll() is not None, "the cluster is ready")
        assert self.up.poll() is None, self.log_tail()

    def stop(self) -> int:
        """As a person does, by SIGTERM; with force where that takes too long."""
        self.up.terminate()
        try:
            return self.up.wait(60)
        except subprocess.TimeoutExpired:
            self.up.terminate()
            return self.up.wait(30)

    def _now_running(self, program: str) -> int | None:
        try:
            return self.pid(program)
        except AssertionError:
            return None


@contextmanager
def running(
    *,
    roles: Mapping[str, Any] = ALL_ROLES,
    timing: Mapping[str, float] | None = None,
    packages: Sequence[Path] = (),
    folder: Path | None = None,
) -> Iterator[Cluster]:
    """A cluster that is ready for jobs. `packages`: folders like site-packages; `folder`: a short path, removed at the
    end. Files in its folder `rewards` may be rewards.
    """
    folder = folder or short_folder()
    (folder / "rewards").mkdir()
    table = {
        "name": "t",
        "address": f"ipc://{folder}/driver.sock",
        "state": str(folder / "state"),
        "runs": str(folder / "runs"),
        "reward_paths": [str(folder / "rewards")],
        **roles,
        **({"timing": dict(timing)} if timing else {}),
    }
    (folder / "node.toml").write_text(tomli_w.dumps(table))
    cluster = Cluster(
        folder=folder,
        up=_start(folder, packages),
        driver=Digend(f"ipc://{folder}/driver.sock"),
        short=short_job(folder),
        packages=tuple(packages),
    )
    try:
        cluster.wait_until_ready()
        yield cluster
    finally:
        cluster.stop()
        cluster.driver.close()
        if not KEEP:
            shutil.rmtree(folder, ignore_errors=True)


def short_folder() -> Path:
    """A new folder whose path leaves room for the names of sockets."""
    return Path(tempfile.mkdtemp(prefix="digend-e2e-", dir="/tmp"))


def warm_up(cluster: Cluster) -> None:
    """A job that every generator and the trainer must work for: the first one imports diffusers."""
    cluster.run("warm-up", "training.deterministic=true", "training.global_steps=1", "eval.enabled=false")


def short_job(folder: Path) -> tuple[str, ...]:
    """Overrides that make the demo's job one of seconds: 4 global steps of 2 prompts x 4 samples, 4 timesteps."""
    prompts = folder / "prompts.txt"
    lines = (JOB.parent / "shapes-prompts.txt").read_text("utf-8").splitlines()
    prompts.write_text("\n".join(lines[:4]) + "\n")
    return (
        f"data.prompts={prompts}",
        "data.prompts_per_rollout=2",
        "data.samples_per_prompt=4",
        "sampling.num_timesteps=4",
        "sampling.rollout_batch=2",
        "algorithm.options.window_size=2",
        "algorithm.options.window_range=[0, 2]",
        "training.global_steps=4",
        "training.update_batch=3",
        "training.timestep_width=1",
        "eval.samples=2",
        "eval.during_samples=1",
        "eval.every=0",
        "checkpoint.every=2",
        "keep_pairs=true",
    )


def digenctl(*words: str, code: int = ExitCode.OK, packages: Sequence[Path] = ()) -> "subprocess.CompletedProcess[str]":
    """digenctl as a process, which must end with `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "clients", *words],
        cwd=ROOT,
        env=with_packages(packages),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def digend(*words: str) -> "subprocess.Popen[str]":
    """A daemon's command line, with its log in `stderr`."""
    command = [sys.executable, "-m", "daemons.main", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)


def answers(driver: Digend) -> bool:
    """Whether a driver is there."""
    try:
        driver.version()
    except ClientError:
        return False
    return True


def _start(folder: Path, packages: Sequence[Path]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "daemons.main", "up", str(folder / "node.toml"), "--ready-file", "ready"]
    command[-1] = str(folder / "ready")
    with (folder / "up.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=ROOT, env=with_packages(packages), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _children(parent: int) -> Iterator[tuple[int, list[str]]]:
    """(pid, command line) of the processes that `parent` started and that still run."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (entry / "cmdline").read_bytes().decode().split("\0")[:-1]
        except (OSError, ValueError):
            continue
        if int(ppid) == parent and state != "Z":
            yield int(entry.name), words
