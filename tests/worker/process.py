"""A real worker process around the fake engine: `python -m tests.worker.process ROLE NODE.toml SLOT TIMING START`."""

import json
import sys
from typing import cast

from daemons.worker.identity import ShellTiming
from daemons.worker.main import CannotStart, WorkerRole, run_worker
from digend.config.loader import load_node
from digend.engines.protocols import Engine
from tests.worker.fake_engine import FakeEngine


def start() -> tuple[str, Engine]:
    return "fake", FakeEngine()


def start_refused() -> tuple[str, Engine]:
    raise CannotStart("device 'cuda:7': torch sees 0 GPUs here")


def start_broken() -> tuple[str, Engine]:
    raise RuntimeError("a library is damaged")


STARTS = {"fine": start, "refused": start_refused, "broken": start_broken}

if __name__ == "__main__":
    role, node_file, slot, timing, how = sys.argv[1:]
    sys.exit(
        run_worker(
            cast(WorkerRole, role),
            load_node(node_file),
            int(slot),
            STARTS[how],
            ShellTiming(**json.loads(timing)),
        )
    )
