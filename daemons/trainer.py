"""The trainer: loss, gradients, optimizer, publishing; generates where the job says so. Torch is the engine's."""

from daemons.reload import Reread
from daemons.worker.main import run as run_worker
from digend.config.node import NodeConfig


def run(node: NodeConfig, slot: int = 0, reread: Reread | None = None) -> int:
    """Until it is asked to stop; returns the exit code."""
    return run_worker("trainer", node, slot, reread)
