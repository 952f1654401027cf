"""The recorder's process: puts the pieces together, turns SIGTERM into a drain, returns the exit code."""

import asyncio
import signal
import uuid
from pathlib import Path

from daemons import keyring
from daemons.metrics.endpoint import CannotListen, serving
from daemons.metrics.recorder import RecorderMetrics
from daemons.notify import Notifier
from daemons.recorder.archive import Archive, Locked, Unwritable
from daemons.recorder.conversation import Identity, Recorder, RecorderTiming
from daemons.recorder.puller import BlobPuller
from daemons.reload import Reread, Settings
from daemons.worker.versions import installed_versions
from digend.config.errors import ConfigError
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.net.addresses import BadAddress
from digend.net.blobs import BlobClient
from digend.net.link import Link
from digend.telemetry.logs import logger, set_up


def run(node: NodeConfig, reread: Reread | None = None) -> int:
    """Record until asked to stop (42); 78 where the settings cannot work. `node` has absolute paths.

    SIGHUP reads the settings again by `reread`, where it is given.
    """
    set_up(node.log_format, node.log_level, f"{node.name}/recorder")
    try:
        return asyncio.run(_record(node, reread))
    except (BadAddress, CannotListen, ConfigError, Locked, Unwritable) as error:
        logger().error("cannot start", reason=str(error))
        return ExitCode.BAD_CONFIG


async def _record(node: NodeConfig, reread: Reread | None) -> int:
    loop = asyncio.get_running_loop()
    security = keyring.load(node)
    client = BlobClient(security=security)
    archive = Archive(Path(node.runs), BlobPuller(client, loop))
    try:
        link = Link.connect(node.address, security=security)
        try:
            notifier = Notifier()
            metrics = RecorderMetrics() if node.metrics else None
            timing = RecorderTiming(lost_s=node.timing.lost_s)
            recorder = Recorder(_identity(node), link, archive, timing, notifier, metrics)
            if reread is not None:
                live = {"timing.lost_s": lambda config: recorder.set_timing(config.timing)}
                Settings(keyring.rereading(reread, security), "recorder", node, notifier, live).listen()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, recorder.ask_to_stop)
            with serving(node, "recorder", 0, metrics):
                return await recorder.run()
        finally:
            link.close()
    finally:
        client.close()
        archive.close()


def _identity(node: NodeConfig) -> Identity:
    return Identity(
        name=f"{node.name}/recorder/0",
        node=node.name,
        instance=uuid.uuid4().hex,
        versions=installed_versions(),
        runs=node.runs,
    )
