"""The trainer: loss, gradients, optimizer, publishing; generates where the job says so. Torch is the engine's."""

from daemons.worker.main import run as run_worker
from digend.config.node import NodeConfig


def run(node: NodeConfig, slot: int = 0, node_file: str | None = None) -> int:
    """Until it is asked to stop; returns the exit code."""
    return run_worker("trainer", node, slot, node_file)
