"""Task round trips a second through a real driver, beside dask.distributed and Ray actors.

    python -m benchmarks.driver [--seconds 15] [--dask-python PATH] [--ray-python PATH] [--json FILE]

The driver is a process of its own, with its journal on disk and metrics on. Workers speak the real protocol, are all in
a second process, and do every task at once (`tests.driver.fakes`), so that what is measured is the driver: receive a
result, decide, journal, acknowledge, send the next task. A job of groups of 16 samples runs on 2 generators, on 16, and
on 16 with 500 more connected that only send heartbeats. Told: results acknowledged a second, the driver's CPU seconds a
second and resident memory, and the 99th percentile of its event loop's lag.

dask and Ray run empty tasks under interpreters of their own (pip install distributed; pip install ray), on as many
workers, each a process; nothing is journalled there. In flight: one task a worker here and with Ray, 200 with dask, who
so never waits for a round trip. Here a task carries what a real one does (samples, seeds, blobs), there a number. Not
measured where no interpreter is named. Three minutes.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from digend.config.node import NodeConfig
from digend.config.prompts import PromptRow, packed_prompts
from digend.wire.requests import Submit
from tests.driver.fakes import FakeWorker, living
from tests.driver.world import client_of, job_config

WARM_S = 3.0
PEERS = Path(__file__).parent / "peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    what: str
    workers: int
    connected: int
    tasks_per_s: float | None
    """None: not measured."""
    cpu_share: float | None = None
    resident_mib: float | None = None
    lag_p99_s: float | None = None


def node_file(folder: Path) -> Path:
    path = folder / "node.toml"
    path.write_text(
        f'name = "n"\naddress = "ipc://{folder}/d.sock"\nstate = "{folder}/state"\nruns = "{folder}/runs"\n'
        "[driver]\n[metrics]\nport = 0\n",
        encoding="utf-8",
    )
    return path


def digend(workers: int, idle: int, seconds: float) -> Row:
    with TemporaryDirectory(prefix="dg") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "daemons.main", "driver", "--node", str(node_file(folder))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return asyncio.run(_measured(folder, process.pid, workers, idle, seconds))
        finally:
            process.terminate()
            process.wait(30)


async def _measured(folder: Path, pid: int, workers: int, idle: int, seconds: float) -> Row:
    node = NodeConfig.model_validate({"address": f"ipc://{folder}/d.sock", "state": str(folder / "state")})
    names = [f"n/generator/{number}" for number in range(workers)]
    async with AsyncExitStack() as stack:
        crew = [FakeWorker(node, "trainer", "n/trainer/0"), *(FakeWorker(node, "generator", name) for name in names)]
        crew += [FakeWorker(node, "generator", f"n/generator/{workers + number}") for number in range(idle)]
        for worker in crew:
            await stack.enter_async_context(living(worker))
        client = await stack.enter_async_context(client_of(node))
        config = job_config(
            data={"prompts_per_rollout": 16, "samples_per_prompt": 16},
            schedule={"strategy": "never", "generators": names},
            training={"global_steps": 100_000},
            eval={"samples": 1, "during_samples": 1, "every": 100_000},
            checkpoint={"every": 100_000},
        )
        prompts = await client.upload(packed_prompts(tuple(PromptRow(f"prompt {number}") for number in range(64))))
        submit = Submit(
            request=client.next_request(),
            config=config.model_dump_json(),
            toml="name = 'benchmark'\n",
            prompts=prompts,
            eval_prompts=None,
            job=None,
        )
        client.link.send(submit)
        await asyncio.sleep(WARM_S + idle / 100)
        begun, cpu, done = time.perf_counter(), _cpu_s(pid), _done(crew)
        await asyncio.sleep(seconds)
        wall_s = time.perf_counter() - begun
        return Row(
            what="digend",
            workers=workers,
            connected=len(crew),
            tasks_per_s=(_done(crew) - done) / wall_s,
            cpu_share=(_cpu_s(pid) - cpu) / wall_s,
            resident_mib=_resident_mib(pid),
            lag_p99_s=await asyncio.to_thread(_lag_p99_s, folder),
        )


def _done(crew: list[FakeWorker]) -> int:
    return sum(len(worker.tasks) - len(worker.unacknowledged) for worker in crew)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _lag_p99_s(folder: Path) -> float | None:
    """Upper edge of the bucket that the percentile lies in, since the driver began."""
    told = json.loads(next((folder / "state" / "metrics").glob("*.json")).read_text(encoding="utf-8"))
    with urlopen(f"http://{told[0]['targets'][0]}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    buckets: list[tuple[float, float]] = []
    for line in lines:
        if line.startswith("digend_event_loop_lag_seconds_bucket"):
            edge, value = line.split('le="')[1].split('"')[0], float(line.rsplit(" ", 1)[1])
            buckets.append((float(edge), value))
    return next((edge for edge, count in buckets if count >= 0.99 * buckets[-1][1]), None) if buckets else None


def peer(what: str, python: str | None, script: str, workers: int, seconds: float) -> Row:
    if python is None:
        return Row(what=what, workers=workers, connected=workers, tasks_per_s=None)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, str(PEERS / script), str(workers), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=True,
        text=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return Row(what=what, workers=workers, connected=workers, tasks_per_s=told["tasks_per_s"])


def shown(row: Row) -> str:
    head = f"{row.what:<7} {row.workers:>3} workers, {row.connected:>3} connected  "
    if row.tasks_per_s is None:
        return head + "not measured"
    if row.cpu_share is None:
        return head + f"{row.tasks_per_s:7.0f} tasks/s"
    lag = "unknown" if row.lag_p99_s is None else f"up to {1000 * row.lag_p99_s:g} ms"
    driver = f"driver: {row.cpu_share:.2f} of a core, {row.resident_mib:.0f} MiB, lag p99 {lag}"
    return head + f"{row.tasks_per_s:7.0f} tasks/s  {driver}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="Of each measurement.")
    parser.add_argument("--dask-python", metavar="PATH", help="An interpreter with distributed.")
    parser.add_argument("--ray-python", metavar="PATH", help="An interpreter with ray.")
    parser.add_argument("--json", metavar="FILE", help="Write the rows there too.")
    options = parser.parse_args()
    rows: list[Row] = []
    for workers, idle in ((2, 0), (16, 0), (16, 500)):
        rows.append(digend(workers, idle, options.seconds))
        print(shown(rows[-1]), flush=True)
        if not idle:
            rows.append(peer("dask", options.dask_python, "dask_tasks.py", workers, options.seconds))
            rows.append(peer("ray", options.ray_python, "ray_tasks.py", workers, options.seconds))
            print(*map(shown, rows[-2:]), sep="\n", flush=True)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": [asdict(row) for row in rows], "load": load}, indent=1))


if __name__ == "__main__":
    main()
