"""`up` over fake programs: `python -m tests.up.process NODE.toml FOLDER`."""

import asyncio
import sys
from pathlib import Path

from daemons.backoff import Backoff
from daemons.children import Program
from daemons.up import supervise
from digend.config.layers import Places
from digend.config.loader import load_node
from digend.config.node import NodeConfig
from digend.net.security import Security
from digend.telemetry.logs import set_up


def main(node_file: str, folder: Path) -> int:
    def command(program: Program, places: Places, lifeline: int) -> list[str]:
        return [sys.executable, "-m", "tests.up.child", program.name, str(folder), str(lifeline)]

    async def all_there(node: NodeConfig, workers: list[str], security: Security | None) -> None:
        while not (folder / "ready").exists():  # noqa: ASYNC110 - a file cannot be awaited
            await asyncio.sleep(0.02)

    set_up("console", "info", "up")
    backoff = Backoff(first_s=0.05, last_s=0.2)
    node = load_node(node_file)
    return asyncio.run(
        supervise(node, Places(node_file), command=command, backoff=lambda: backoff, all_there=all_there)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
