"""The data plane on loopback: one blob pulled from another process, with CURVE and without, side by side in one run.

    python -m benchmarks.data_plane [--mib 64] [--pulls 5]

Prints seconds and MB/s of each pull, and the load of the machine. Digests are made and checked as ever; the owner is a
process of its own. Rounds alternate between the two, so that a busy machine is unfair to neither.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from digend.net.blobs import BlobClient, BlobServer
from digend.net.security import Security, grant, new_pair
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array

MIB = 1024 * 1024


def both_sides() -> tuple[Security, Security]:
    """What owner and consumer have, each on the other's list."""
    owner, consumer = new_pair(), new_pair()
    listed = [
        grant("owner", frozenset({"driver", "trainer"}), owner.public),
        grant("consumer", frozenset({"generator"}), consumer.public),
    ]
    known = {each.public: each for each in listed}
    return Security(owner, known), Security(consumer, known)


def own(line: Connection, security: Security | None, num_bytes: int, folder: str) -> None:
    """The owner's process: sends the reference, serves until it is ended."""
    asyncio.run(_own(line, security, num_bytes, folder))


async def _own(line: Connection, security: Security | None, num_bytes: int, folder: str) -> None:
    server = BlobServer.bind("tcp://127.0.0.1", "owner", Path(folder), security=security)
    line.send(server.put({"latents": Array("uint8", (num_bytes,), os.urandom(num_bytes))}))
    await server.serve()


async def pulled_s(refs: dict[str, BlobRef], security: Security, pulls: int) -> dict[str, list[float]]:
    """Seconds of each pull, the first left out: it makes the connection."""
    client = BlobClient(security=security)
    seconds: dict[str, list[float]] = {name: [] for name in refs}
    for number in range(pulls + 1):
        for name, ref in refs.items():
            begun = time.perf_counter()
            await client.pull(ref, timeout_s=60.0)
            if number:
                seconds[name].append(time.perf_counter() - begun)
    client.close()
    return seconds


def report(seconds: Mapping[str, Sequence[float]], num_bytes: int) -> None:
    for name, each in seconds.items():
        median_s = statistics.median(each)
        print(f"{name:<10} {median_s:.3f} s median of {len(each)}, {num_bytes / median_s / 1e6:.0f} MB/s")
    plain, keyed = (statistics.median(seconds[name]) for name in ("plain", "CURVE"))
    print(f"CURVE takes {keyed / plain:.1f} times as long; load of this machine {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--pulls", type=int, default=5)
    options = parser.parse_args()
    num_bytes = options.mib * MIB
    owners, consumers = both_sides()
    made = {"plain": None, "CURVE": owners}
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        refs, processes = {}, []
        for name, security in made.items():
            near, far = context.Pipe()
            process = context.Process(target=own, args=(far, security, num_bytes, folder), daemon=True)
            process.start()
            processes.append(process)
            refs[name] = near.recv()
        print(f"{options.mib} MiB, one blob, one consumer, tcp loopback")
        report(asyncio.run(pulled_s(refs, consumers, options.pulls)), num_bytes)
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    main()
