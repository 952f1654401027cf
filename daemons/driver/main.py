"""The driver process: everything opened in order, the core brought up to date, the shell run until asked to stop.

Owns start-up and exit codes: ASKED_TO_STOP after a signal, BAD_CONFIG where the same start would fail
again (address or journal in use, damaged journal, folder not writable), DEGRADED where the disk is full.
"""

import asyncio
import gc
import os
import signal
from pathlib import Path

from broker.core import Core
from broker.events import DriverStarted
from broker.state import State
from broker.views import job_views
from daemons import keyring
from daemons.driver import snapshots
from daemons.driver.archive import Archive
from daemons.driver.clock import Clock
from daemons.driver.journal import Journal
from daemons.driver.place import Place
from daemons.driver.replay import bring_up_to_date
from daemons.driver.room import Room
from daemons.driver.schema import JournalFull, JournalUnusable
from daemons.driver.shell import Driver
from daemons.driver.submission import Register
from daemons.driver.summaries import Summaries
from daemons.driver.uploads import Uploads
from daemons.metrics.driver import DriverMetrics
from daemons.metrics.endpoint import CannotListen, serving
from daemons.notify import Notifier
from daemons.reload import Reread, Settings
from digend.config.errors import ConfigError
from digend.config.node import DriverNodeConfig, NodeConfig
from digend.exitcodes import ExitCode
from digend.net.security import Security
from digend.net.server import ControlServer
from digend.telemetry import logs
from digend.telemetry.stages import FINAL_STATES

LIMITS = ("timing.heartbeat_s", "timing.torpid_s", "timing.lost_s", "timing.rejoin_s")
"""Settings that a running driver can change, beside the log level."""


class CannotStart(Exception):
    """The same start would fail again; the message says what to mend."""


def run(node: NodeConfig, reread: Reread | None = None) -> int:
    """Runs the driver that `node` describes (its paths absolute) until SIGTERM or SIGINT; returns the exit code.

    SIGHUP reads the settings again by `reread`, where it is given.
    """
    logs.set_up(node.log_format, node.log_level, f"{node.name}/driver")
    try:
        return asyncio.run(_main(node, reread))
    except (CannotStart, CannotListen, ConfigError, JournalUnusable) as error:
        logs.logger().error("cannot start", reason=str(error))
        return ExitCode.BAD_CONFIG
    except JournalFull as error:
        logs.logger().error("cannot start: the journal has no room", reason=str(error))
        return ExitCode.DEGRADED


async def _main(node: NodeConfig, reread: Reread | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    notifier = Notifier()
    notifier.status("reading the journal")
    security = keyring.load(node)
    server = await _bind(node, security)
    try:
        journal = _journal(node)
        try:
            metrics = DriverMetrics() if node.metrics else None
            driver = assemble(node, server, journal, notifier, metrics)
            if reread is not None:
                live = dict.fromkeys(LIMITS, lambda config: driver.set_timing(config.timing))
                Settings(keyring.rereading(reread, security), "driver", node, notifier, live).listen()
            logs.logger().info("driver started", address=server.address, epoch=journal.epoch)
            gc.freeze()  # what is loaded stays: a collection that looked at it too would hold the loop for 50 ms
            with serving(node, "driver", 0, metrics):
                await driver.run(stop)
        finally:
            journal.close()
    finally:
        server.close()
    logs.logger().info("driver stopped")
    return ExitCode.ASKED_TO_STOP


async def _bind(node: NodeConfig, security: Security | None) -> ControlServer:
    try:
        return await ControlServer.bind(
            node.address, security=security, refused=keyring.told, suspected=keyring.suspected
        )
    except (OSError, ValueError) as error:
        raise CannotStart(f"address: {error}") from error


def _journal(node: NodeConfig) -> Journal:
    _writable(Path(node.state), "state")
    _writable(Path(node.runs), "runs")
    return Journal(Path(node.state) / (node.driver or DriverNodeConfig.model_validate({})).journal)


def _writable(folder: Path, key: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"{key}: {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CannotStart(f"{key}: {folder} is not writable")


def assemble(
    node: NodeConfig,
    server: ControlServer,
    journal: Journal,
    notifier: Notifier | None = None,
    metrics: DriverMetrics | None = None,
) -> Driver:
    """A driver that has read its journal and is about to begin. Raises JournalUnusable, JournalFull."""
    clock = Clock(journal.now_ns)
    core, summaries, earlier = _restored(journal, clock, metrics)
    timing = node.timing
    return Driver(
        core=core,
        summaries=summaries,
        journal=journal,
        server=server,
        clock=clock,
        room=Room(journal.path),
        uploads=Uploads(Path(node.state) / "uploads"),
        register=Register(Archive(journal).jobs(), lambda job: (Path(node.runs) / job).exists()),
        heartbeat_s=timing.heartbeat_s,
        started=DriverStarted(
            epoch=journal.epoch,
            torpid_s=timing.torpid_s,
            lost_s=timing.lost_s,
            rejoin_s=timing.rejoin_s,
            drains=tuple(earlier.drains.values()),
            usage=dict(earlier.usage),
        ),
        notifier=notifier,
        metrics=metrics,
        place=Place(node=node.name, journal=journal.path, state=Path(node.state), runs=Path(node.runs)),
    )


def _newest_snapshot(journal: Journal) -> tuple[Core, Summaries, int]:
    """Where stepping through the batches begins, and behind which of them; at the first where there is no snapshot."""
    kept = journal.snapshot()
    if kept is not None:
        try:
            return (*snapshots.restored(kept[1]), kept[0])
        except snapshots.SnapshotUnusable as error:
            logs.logger().info("the whole journal is read, its snapshot is of no use", reason=str(error))
    core = Core()
    return core, Summaries(core), 0


def _restored(journal: Journal, clock: Clock, metrics: DriverMetrics | None) -> tuple[Core, Summaries, State]:
    """The core as it was; a new one in a new segment where no job was open, and what the earlier one knew."""
    core, summaries, after = _newest_snapshot(journal)
    earlier = core.state
    count = bring_up_to_date(core, summaries, journal.batches(after=after))
    if metrics is not None:
        metrics.begin_with(*summaries.newest())
    if all(job.state in FINAL_STATES for job in job_views(core.state)):
        journal.begin(now_ns=clock.now_ns(), finished=summaries.details())
        core = Core()
        summaries = Summaries(core)
    else:
        journal.begin(now_ns=clock.now_ns())
    logs.logger().info("journal read", file=str(journal.path), batches=count, segment=journal.segment)
    return core, summaries, earlier
