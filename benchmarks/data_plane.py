"""The data plane on loopback beside plain pyzmq and Ray's object store: a trajectory from one process to another.

    python -m benchmarks.data_plane [--mib 4 64 512] [--rounds 5] [--ray-python PATH] [--json FILE]

Four ways, in turn in every round, so that a busy machine is unfair to none: `plain`, one multipart message without
digests; `digend`, put and pulled in pieces, digests made and checked; `digend CURVE`, the same encrypted; `ray`, put
into the object store by one actor and got by another, where `--ray-python` names an interpreter with ray and numpy
(python -m venv /tmp/rayenv && /tmp/rayenv/bin/pip install ray numpy). Owner and consumer are processes of their own.

`ready` is what the owner does before anybody can ask (digests; the store's copy), `pull` the way of the bytes, of which
plain's share is told. CPU seconds are of owner and consumer together. Copies: by how much the memory of both processes
grew at most, in trajectories, from after a first trajectory of 64 KiB on (not measured for ray, whose store is shared
memory). Two minutes on two idle cores.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.plane_ends import CONSUMERS, MIB, OWNERS, Done, both_sides

WAYS = ("plain", "digend", "digend CURVE", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Medians over the rounds; None: not measured."""

    way: str
    mib: int
    ready_s: float | None = None
    pull_s: float | None = None
    cpu_s: float | None = None
    share_of_plain: float | None = None
    """Throughput of the pull against plain's, the median of what each round gives."""
    copies: float | None = None


class Pair:
    """Owner and consumer of one way and size, as two processes."""

    def __init__(self, way: str, num_bytes: int, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        sides = both_sides() if "CURVE" in way else (None, None)
        kind = way.split(maxsplit=1)[0]
        self.num_bytes = num_bytes
        self._ends: list[Connection] = []
        self._processes = []
        ends: tuple[Callable[..., None], ...] = (OWNERS[kind], CONSUMERS[kind])
        for target, security in zip(ends, sides, strict=True):
            near, far = context.Pipe()
            process = context.Process(target=target, args=(far, security, num_bytes, folder), daemon=True)
            process.start()
            self._ends.append(near)
            self._processes.append(process)

    def once(self) -> tuple[Done, Done]:
        owner, consumer = self._ends
        owner.send("make")
        ready: Done = owner.recv()
        consumer.send(ready.what)
        pulled: Done = consumer.recv()
        owner.send("done")
        after: Done = owner.recv()
        return Done(seconds=ready.seconds, cpu_s=ready.cpu_s + after.cpu_s, grown=after.grown), pulled

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


class RayPair:
    """A Ray cluster of its own, under another interpreter; answers JSON lines."""

    def __init__(self, python: str) -> None:
        script = Path(__file__).parent / "peers" / "ray_objects.py"
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def once(self, num_bytes: int) -> tuple[float, float]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("ray's process has no pipes")
        self._process.stdin.write(f"{num_bytes}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("ray's process ended: is ray installed there?")
        times = json.loads(line)
        return times["ready_s"], times["pull_s"]

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(60)


def measured(mib: int, rounds: int, ray: RayPair | None, folder: str) -> list[Row]:
    """All ways at one size. Two rounds do not count: the first, of small trajectories, makes the connections, and the
    next takes memory from the system.
    """
    pairs = {way: Pair(way, mib * MIB, folder) for way in WAYS if way != "ray"}
    ready: dict[str, list[float]] = {way: [] for way in WAYS}
    pull: dict[str, list[float]] = {way: [] for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    grown: dict[str, float] = {}
    for number in range(-2, rounds):
        for way, pair in pairs.items():
            made, pulled = pair.once()
            grown[way] = (made.grown + pulled.grown) / pair.num_bytes
            if number >= 0:
                ready[way].append(made.seconds)
                pull[way].append(pulled.seconds)
                cpu[way].append(made.cpu_s + pulled.cpu_s)
        if ray is not None:
            ready_s, pull_s = ray.once(mib * MIB)
            if number >= 0:
                ready["ray"].append(ready_s)
                pull["ray"].append(pull_s)
    for pair in pairs.values():
        pair.close()
    return [_row(way, mib, ready[way], pull[way], cpu[way], pull["plain"], grown.get(way)) for way in WAYS]


def _row(
    way: str,
    mib: int,
    ready: Sequence[float],
    pull: Sequence[float],
    cpu: Sequence[float],
    plain: Sequence[float],
    copies: float | None,
) -> Row:
    if not pull:
        return Row(way=way, mib=mib)
    return Row(
        way=way,
        mib=mib,
        ready_s=statistics.median(ready),
        pull_s=statistics.median(pull),
        cpu_s=statistics.median(cpu) if cpu else None,
        share_of_plain=statistics.median(p / own for p, own in zip(plain, pull, strict=True)),
        copies=copies,
    )


def line(row: Row) -> str:
    if row.pull_s is None or row.share_of_plain is None:
        return f"{row.mib:>5} MiB  {row.way:<13} not measured"
    copies = "not measured" if row.copies is None else f"{row.copies:.2f}"
    cpu = "not measured" if row.cpu_s is None else f"{row.cpu_s:.3f} s"
    return (
        f"{row.mib:>5} MiB  {row.way:<13} ready {row.ready_s:.4f} s  pull {row.pull_s:.4f} s "
        f"({row.mib * MIB / row.pull_s / 1e6:.0f} MB/s, {row.share_of_plain:.0%} of plain)  cpu {cpu}  copies {copies}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[4, 64, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ray-python", metavar="PATH", help="An interpreter with ray; not measured without it.")
    parser.add_argument("--json", metavar="FILE", help="Write the rows there too.")
    options = parser.parse_args()
    ray = RayPair(options.ray_python) if options.ray_python else None
    rows: list[Row] = []
    begun = time.monotonic()
    with TemporaryDirectory() as folder:
        for mib in options.mib:
            for row in measured(mib, options.rounds, ray, folder):
                rows.append(row)
                print(line(row), flush=True)
    if ray is not None:
        ray.close()
    print(f"{options.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"took {time.monotonic() - begun:.0f} s")
    if options.json:
        document = {"rows": [asdict(row) for row in rows], "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        Path(options.json).write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
