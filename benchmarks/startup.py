"""How long digenctl takes to answer: `python -m benchmarks.startup [--runs N]`. Goals: --help 0.3 s, status 0.4 s.

Each figure is a median over processes, one after another, against a driver that does nothing else. CPU time stands
beside wall time, because on a busy machine only the first one is digenctl's.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

GOALS = {"--help": 0.3, "status": 0.4}
READY_S = 60.0
_DIGENCTL = [sys.executable, "-m", "clients"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    print(f"{'':24}{'wall':>8}{'CPU':>8}{'goal':>8}")
    with driver() as node:
        tell("python -c pass", [sys.executable, "-c", "pass"], runs)
        tell("digenctl --help", [*_DIGENCTL, "--help"], runs, GOALS["--help"])
        tell("digenctl status", [*_DIGENCTL, "status", "--node", str(node)], runs, GOALS["status"])


def tell(name: str, command: Sequence[str], runs: int, goal: float | None = None) -> None:
    times = [timed(command) for _ in range(runs)]
    wall, cpu = (median(each) for each in zip(*times, strict=True))
    print(f"{name:24}{wall:>6.2f} s{cpu:>6.2f} s" + (f"{goal:>6.1f} s" if goal else ""), flush=True)


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of one process: on the clock, and of processor time."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def driver() -> Iterator[Path]:
    """The node file of a driver that is ready, in a folder of its own; both are gone after the block."""
    with tempfile.TemporaryDirectory(prefix="digend-startup-", dir="/tmp") as folder:
        node = Path(folder) / "node.toml"
        node.write_text(f'name = "box"\naddress = "ipc://{folder}/d.sock"\nstate = "{folder}"\n\n[driver]\n')
        command = [sys.executable, "-m", "daemons.main", "driver", "--node", str(node)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_ready(node)
            yield node
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(node: Path) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + READY_S
    ask = [*_DIGENCTL, "status", "--node", str(node)]
    while subprocess.run(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no driver was ready after {READY_S:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
