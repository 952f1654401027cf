"""The reward process: scores samples where the reward is dedicated. Torch is the engine's.

Where the node file names another interpreter for rewards, this process becomes that one before anything is opened: the
same arguments and process, so that `digend up`, a unit and a person start it alike.
"""

import os
import sys
from pathlib import Path

from daemons.reload import Reread
from daemons.worker.main import run as run_worker
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger, set_up

log = logger()

BECAME = "_DIGEND_REWARD_PYTHON"
"""Environment: the interpreter that this process has become, so that it becomes it once."""


def run(node: NodeConfig, slot: int = 0, reread: Reread | None = None) -> int:
    """Until it is asked to stop; returns the exit code. Does not return where it becomes another interpreter."""
    python = node.reward.python if node.reward is not None else ""
    if python and os.environ.get(BECAME) != python:
        return _become(python, f"{node.name}/reward/{slot}", node)
    return run_worker("reward", node, slot, reread)


def _become(python: str, name: str, node: NodeConfig) -> int:
    """Only where it fails it returns, with the code of a configuration that a restart does not mend."""
    interpreter = str(Path(python).expanduser())
    environment = {**os.environ, BECAME: python}
    try:
        os.execve(interpreter, [interpreter, "-m", "daemons.main", *sys.argv[1:]], environment)
    except OSError as error:
        set_up(node.log_format, node.log_level, name)
        log.error("cannot start", reason=f"reward.python: {interpreter}: {error.strerror}")
    return ExitCode.BAD_CONFIG
