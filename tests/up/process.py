"""`up` over fake programs: `python -m tests.up.process NODE.toml FOLDER`."""

import asyncio
import sys
from pathlib import Path

from daemons.backoff import Backoff
from daemons.children import Program
from daemons.up import supervise
from digend.config.layers import Places
from digend.config.loader import load_node
from digend.telemetry.logs import set_up


def main(node_file: str, folder: Path) -> int:
    def command(program: Program, places: Places, lifeline: int) -> list[str]:
        return [sys.executable, "-m", "tests.up.child", program.name, str(folder), str(lifeline)]

    set_up("console", "info", "up")
    backoff = Backoff(first_s=0.05, last_s=0.2)
    return asyncio.run(supervise(load_node(node_file), Places(node_file), command=command, backoff=lambda: backoff))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
