"""A worker process from start to end: identity, sockets, signals, exit code. The heavy imports are the engine's.

Invariant: the process ends with 42 when asked to stop, 78 when its configuration was refused for good, 1 when anything
else ended it, and it does end: a compute thread that does not come back is left behind.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from daemons import keyring
from daemons.metrics.endpoint import CannotListen, serving
from daemons.metrics.worker import WorkerMetrics
from daemons.notify import Notifier
from daemons.reload import Reread, Settings
from daemons.slots import number_of
from daemons.worker.blobs import WorkerBlobs
from daemons.worker.compute import EngineStart
from daemons.worker.identity import Identity, ShellTiming
from daemons.worker.shell import Worker
from daemons.worker.versions import installed_versions
from digend.config.errors import ConfigError
from digend.config.node import NodeConfig
from digend.config.offload import offload_of
from digend.engines.protocols import Engine
from digend.exitcodes import ExitCode
from digend.extras import lacking
from digend.net.addresses import BadAddress
from digend.net.blobs import BlobClient, BlobServer
from digend.net.claims import AddressInUse
from digend.net.interfaces import Interface, find
from digend.net.link import Link
from digend.telemetry.gpu_watch import GpuWatch
from digend.telemetry.logs import logger, set_up
from digend.wire.devices import DeviceState

log = logger()

WorkerRole = Literal["generator", "trainer", "reward"]

WATCHED_GPU = "DIGEND_WATCHED_GPU"
"""Environment: NVML's index or UUID of a GPU to report on though the worker computes on a CPU. For tests."""


class CannotStart(Exception):
    """It would go no better the next time: the engine refuses its configuration, or its packages are missing."""


def run(role: WorkerRole, node: NodeConfig, slot: int, reread: Reread | None = None) -> int:
    """Runs the worker that `node` describes (its paths absolute) until it is asked to stop; returns the exit code.

    SIGHUP reads the settings again by `reread`, where it is given.
    """
    threads, device = compute_options(role, node, slot)
    peak = peak_flops(role, node)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    try:
        _prepare(role, node)
    except (BadAddress, CannotStart) as error:
        set_up(node.log_format, node.log_level, f"{node.name}/{role}/{slot}")
        log.error("cannot start", reason=str(error))
        return ExitCode.BAD_CONFIG

    watch = GpuWatch()

    def start() -> tuple[str, Engine]:
        if role == "reward" and find_spec("torch") is None:
            from digend.engines.scoring_engine import ScoringEngine

            return device or "cpu", ScoringEngine(device or "cpu", node.reward_paths)
        from digend.engines.devices import cached_bytes, choose_device, gpu_uuid
        from digend.engines.engine import LocalEngine

        try:
            chosen = choose_device(device, role, slot)
        except ValueError as error:
            raise CannotStart(str(error)) from None
        if uuid := gpu_uuid(chosen):
            watch.begin(chosen, uuid, lambda: cached_bytes(chosen))
        elif forced := os.environ.get(WATCHED_GPU):
            watch.begin(chosen, forced)
        offload = offload_of(node.generator)
        options = (threads, peak, offload, meeting_place(node, role).address)
        return chosen, LocalEngine(role, chosen, node.runs, node.state, node.reward_paths, *options)

    return run_worker(role, node, slot, start, device_state=watch.state, reread=reread)


def run_worker(
    role: WorkerRole,
    node: NodeConfig,
    slot: int,
    start: EngineStart,
    timing: ShellTiming | None = None,
    device_state: Callable[[], DeviceState | None] = lambda: None,
    reread: Reread | None = None,
) -> int:
    """As `run`, with any engine."""
    name = f"{node.name}/{role}/{slot}"
    set_up(node.log_format, node.log_level, name)
    worker: list[Worker] = []
    code = _exit_code(lambda: asyncio.run(_live(role, node, name, start, timing, device_state, worker, reread)))
    if worker and worker[0].busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def compute_options(role: WorkerRole, node: NodeConfig, slot: int) -> tuple[int, str | None]:
    """(torch threads, device or None for automatic) of a slot; 1 thread where no setting names the role."""
    if role == "trainer":
        return (node.trainer.threads, node.trainer.device_of(slot)) if node.trainer else (1, None)
    section = node.generator if role == "generator" else node.reward
    if section is None:
        return 1, None
    return section.threads, section.devices[slot] if slot < len(section.devices) else None


def meeting_place(node: NodeConfig, role: WorkerRole) -> Interface:
    """Where torch.distributed of a worker of this box listens. Raises BadAddress, which names the setting."""
    section = {"generator": node.generator, "trainer": node.trainer}.get(role)
    try:
        return find(section.interface if section is not None else "")
    except BadAddress as error:
        raise BadAddress(f"{role}.interface: {error}") from None


def _prepare(role: WorkerRole, node: NodeConfig) -> None:
    """What has to be so before torch is imported. Raises CannotStart, BadAddress."""
    if role != "reward" and (trouble := lacking()):
        raise CannotStart(trouble)
    if role != "reward":
        _bind(meeting_place(node, role))


def _bind(place: Interface) -> None:
    """torch.distributed listens there and nowhere else, whatever the environment said before."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        os.environ[name] = place.name


def data_address(node: NodeConfig, role: WorkerRole, slot: int) -> str:
    """Where the worker serves its blobs: with a port where the node file has one."""
    return f"{node.data}:{node.data_port + number_of(node, role, slot)}" if node.data_port else node.data


def peak_flops(role: WorkerRole, node: NodeConfig) -> float | None:
    """What the node file says of the role's devices; None where it leaves that to the table."""
    section = {"generator": node.generator, "trainer": node.trainer}.get(role)
    return section.peak_flops if section is not None else None


async def _live(
    role: WorkerRole,
    node: NodeConfig,
    name: str,
    start: EngineStart,
    timing: ShellTiming | None,
    device_state: Callable[[], DeviceState | None],
    made: list[Worker],
    reread: Reread | None,
) -> int:
    instance = uuid4().hex
    security = keyring.load(node)
    data = data_address(node, role, int(name.rpartition("/")[2]))
    server = BlobServer.bind(data, instance, Path(node.state), security=security, refused=keyring.told, **_room(node))
    blobs = WorkerBlobs(server, BlobClient(security=security))
    try:
        link = Link.connect(node.address, security=security)
        identity = Identity(
            role=role,
            name=name,
            node=node.name,
            instance=instance,
            data=blobs.address,
            versions=installed_versions(),
            meet_at=meeting_place(node, role).address,
        )
        timing = timing or ShellTiming(lost_s=node.timing.lost_s)
        notifier = Notifier()
        metrics = WorkerMetrics() if node.metrics else None
        worker = Worker(identity, link, blobs, start, timing, device_state, notifier, metrics)
        made.append(worker)
        if reread is not None:
            live = {"timing.lost_s": lambda config: worker.set_timing(config.timing)}
            Settings(keyring.rereading(reread, security), role, node, notifier, live).listen()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.ask_to_stop)
        try:
            with serving(node, role, int(name.rpartition("/")[2]), metrics):
                return await worker.run()
        finally:
            link.close()
    finally:
        blobs.close()


def _room(node: NodeConfig) -> dict[str, Any]:
    """Limits of the blobs, in bytes."""
    memory_gib = node.blobs.memory_gib
    return {
        "memory_bytes": None if memory_gib is None else int(memory_gib * 2**30),
        "spool_bytes": int(node.blobs.spool_gib * 2**30),
    }


def _exit_code(live: Callable[[], int]) -> int:
    try:
        return live()
    except (BadAddress, AddressInUse, CannotListen, ConfigError) as error:
        log.error("cannot start", reason=str(error))
        return ExitCode.BAD_CONFIG
    except Exception as error:
        refused = error.subgroup(CannotStart) if isinstance(error, ExceptionGroup) else None
        if refused:
            log.error("cannot start", reason=str(refused.exceptions[0]))
            return ExitCode.BAD_CONFIG
        log.error("the worker broke", exc_info=error)
        return ExitCode.TARGET_FAILED
