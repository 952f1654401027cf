"""A policy version to 1, 2 and 4 receivers behind slow links: the whole, a LoRA adapter, changed elements.

    python -m benchmarks.weights [--receivers 1 2 4] [--mb-per-s 5] [--mib 32] [--json FILE]

Each receiver is a process that stages as a worker does (`daemons.worker.blobs`): from the trainer and from the other
receivers. Every host, the trainer too, has one link of the given rate in each direction; a proxy in this process
makes it (`benchmarks.slow_links`), so nothing of the machine is changed. Told: seconds until the last receiver has the
version, with its digests checked, against one receiver; and how much left the trainer, in versions.

The whole is `--mib` of bfloat16; of the next version `--changed` of the elements differ; the adapter is a quarter of
that in float32. `--apart` leaves the receivers alone with the trainer, as it would be without passing on. About two
minutes.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.slow_links import Links
from daemons.worker.blobs import WorkerBlobs
from digend.net.blobs import BlobClient, BlobServer
from digend.wire.changes import changes_between
from digend.wire.refs import WeightsChanges, WeightsRef
from digend.wire.tensors import Array

MIB = 1024 * 1024
FORMS = ("whole", "lora", "changes")
TRAINER = "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    form: str
    receivers: int
    num_bytes: int
    """What one receiver needs."""
    seconds: float
    times_one: float
    """Against the first number of receivers."""
    left_trainer: float
    """Bytes that left the trainer, in `num_bytes`."""


def version(number: int, mib: int, changed: float) -> dict[str, Array]:
    """Random bfloat16; version 1 differs from version 0 in a share of its elements."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Array] = {}
    for layer in range(8):
        values = rng.integers(0, 2**16, mib * MIB // 16, np.uint16)
        if number:
            where = np.random.default_rng(layer).random(values.size) < changed
            values[where] ^= 1
        tensors[f"transformer/blocks.{layer}.weight"] = Array("bfloat16", values.shape, values.view(np.uint8).data)
    return tensors


def trainer(line: Connection, folder: str, mib: int, changed: float) -> None:
    """Serves version 1 in each form; says its port and the references."""
    asyncio.run(_trainer(line, folder, mib, changed))


async def _trainer(line: Connection, folder: str, mib: int, changed: float) -> None:
    server = BlobServer.bind("tcp://127.0.0.1", TRAINER, Path(folder))
    before, after = version(0, mib, changed), version(1, mib, changed)
    changes = changes_between(before, after)
    if changes is None:
        raise RuntimeError("the changes are no smaller than the whole")
    size = mib * MIB // 4
    adapter = {"transformer/lora": Array("float32", (size // 4,), np.random.default_rng(1).bytes(size))}
    whole = _weights(server, after, "full")
    known = replace(whole, changes=WeightsChanges(since=0, blob=server.put(changes)))
    line.send((server.address, {"whole": whole, "lora": _weights(server, adapter, "lora"), "changes": known}))
    await server.serve()


def _weights(server: BlobServer, tensors: Mapping[str, Array], form: str) -> WeightsRef:
    return WeightsRef(
        blob=server.put(tensors), job="job", incarnation=0, version=1, num_tensors=len(tensors), form=form
    )


def receiver(line: Connection, name: str, folder: str, mib: int, changed: float) -> None:
    """Stages what it is told to; says how long that took."""
    asyncio.run(_receiver(line, name, folder, mib, changed))


async def _receiver(line: Connection, name: str, folder: str, mib: int, changed: float) -> None:
    server = BlobServer.bind("tcp://127.0.0.1", name, Path(folder))
    blobs = WorkerBlobs(server, BlobClient())
    serving = asyncio.create_task(blobs.run())
    before = version(0, mib, changed)
    line.send(server.address)
    while told := await asyncio.to_thread(line.recv):
        weights, workers, has_before = told
        begun = time.monotonic()
        tensors = await blobs.pull_weights(weights, workers, before if has_before else None)
        line.send(time.monotonic() - begun)
        if len(tensors) != weights.num_tensors:
            raise RuntimeError("tensors are missing")
        await asyncio.to_thread(line.recv)
        blobs.free([weights.blob.id, *([weights.changes.blob.id] if weights.changes else [])])
        line.send("freed")
    serving.cancel()


async def measured(options: argparse.Namespace, folder: str) -> list[Row]:
    context = multiprocessing.get_context("spawn")
    lines: dict[str, Connection] = {}
    names = [f"receiver-{number}" for number in range(max(options.receivers))]
    processes = []
    for name in (TRAINER, *names):
        near, far = context.Pipe()
        shape = (options.mib, options.changed)
        args = (far, folder, *shape) if name == TRAINER else (far, name, folder, *shape)
        processes.append(context.Process(target=trainer if name == TRAINER else receiver, args=args, daemon=True))
        processes[-1].start()
        lines[name] = near
    address, versions = await asyncio.to_thread(lines[TRAINER].recv)
    addresses = {TRAINER: address} | {name: await asyncio.to_thread(lines[name].recv) for name in names}
    links = Links(options.mb_per_s * 1e6, {name: int(each.rpartition(":")[2]) for name, each in addresses.items()})
    for name in names:
        await links.open(name)
    rows: list[Row] = []
    for form in FORMS:
        first_s: float | None = None
        for count in options.receivers:
            row = await _once(form, versions[form], names[:count], lines, links, options.apart)
            first_s = row.seconds if first_s is None else first_s
            rows.append(replace(row, times_one=row.seconds / first_s))
            print(shown(rows[-1]), flush=True)
    for process in processes:
        process.terminate()
    return rows


async def _once(
    form: str, weights: WeightsRef, names: Sequence[str], lines: Mapping[str, Connection], links: Links, apart: bool
) -> Row:
    sent = links.up[TRAINER].num_bytes
    for name in names:
        own = {host: f"tcp://127.0.0.1:{links.doors[name, host]}" for host in (TRAINER, *names) if host != name}
        others = [own[host] for host in names if host != name]
        lines[name].send((_through(weights, own[TRAINER]), [] if apart else others, form == "changes"))
    seconds = [await asyncio.to_thread(lines[name].recv) for name in names]
    left = links.up[TRAINER].num_bytes - sent
    for name in names:
        lines[name].send("free")
        await asyncio.to_thread(lines[name].recv)
    blob = weights.changes.blob if weights.changes else weights.blob
    return Row(
        form=form,
        receivers=len(names),
        num_bytes=blob.num_bytes,
        seconds=max(seconds),
        times_one=1.0,
        left_trainer=left / blob.num_bytes,
    )


def _through(weights: WeightsRef, door: str) -> WeightsRef:
    """The same version, its owner reached through a receiver's own link."""
    changes = weights.changes
    return replace(
        weights,
        blob=replace(weights.blob, owner=door),
        changes=replace(changes, blob=replace(changes.blob, owner=door)) if changes else None,
    )


def shown(row: Row) -> str:
    return (
        f"{row.form:<8} {row.receivers} receivers  {row.num_bytes / MIB:7.2f} MiB  {row.seconds:6.2f} s  "
        f"{row.times_one:.2f} times the first  {row.left_trainer:.2f} versions left the trainer"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receivers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--mb-per-s", type=float, default=5.0, help="Of every host's link, in each direction.")
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--changed", type=float, default=0.01, help="Share of elements that differ.")
    parser.add_argument("--apart", action="store_true", help="Nobody passes anything on.")
    parser.add_argument("--json", metavar="FILE", help="Write the rows there too.")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        rows = asyncio.run(measured(options, folder))
    load = os.getloadavg()[0]
    print(f"links of {options.mb_per_s:g} MB/s each way, {os.cpu_count()} cores, load {load:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": [asdict(row) for row in rows], "load": load}, indent=1))


if __name__ == "__main__":
    main()
