"""The generator: encodes prompts, rolls out, decodes, and scores where the reward is colocated."""

from daemons.worker.main import run as run_worker
from digend.config.node import NodeConfig


def run(node: NodeConfig, slot: int = 0, node_file: str | None = None) -> int:
    """Until it is asked to stop; returns the exit code."""
    return run_worker("generator", node, slot, node_file)
