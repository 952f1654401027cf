"""A GPU's state from the fake NVML library to `digenctl`: a real worker, a real driver, a client."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from clients.api import Digend
from clients.main import cli as digenctl
from daemons.worker.main import WATCHED_GPU
from digend.exitcodes import ExitCode
from digend.wire.views import NodeView
from tests.telemetry.fake_nvml import FakeNvml

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
NODE = 'name = "n"\naddress = "ipc://driver.sock"\nstate = "state"\n[driver]\n[generator]\ndevices = ["cpu"]\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as the paths of sockets must be."""
    with TemporaryDirectory(prefix="dg") as made:
        (Path(made) / "node.toml").write_text(NODE, encoding="utf-8")
        yield Path(made)


def test_from_nvml_to_digenctl(fake_nvml: FakeNvml, folder: Path) -> None:
    fake_nvml.says(sm_clock=1410, reasons=0x20, free=round(61.2 * 2**30))
    with ExitStack() as stack:
        start(stack, fake_nvml, folder, "driver")
        worker = start(stack, fake_nvml, folder, "generator")
        driver = stack.enter_context(Digend(f"ipc://{folder}/driver.sock"))
        node = until(driver, lambda node: bool(node.health))
        assert node.health == "1410/1980 MHz, thermal, 61.2 GiB free"
        assert node.device_state is not None
        assert node.device_state.temperature_c == 61
        for verb in (["nodes"], ["show", "node", "n/generator/0"]):
            assert node.health in told(*verb, "--address", f"ipc://{folder}/driver.sock")

        fake_nvml.says("hang nvmlDeviceGetPowerUsage 1")
        node = until(driver, lambda node: node.health.startswith("not read for"))
        assert node.state == "idle"
        assert node.heartbeat_age_s < 4.0, "a hang of NVML delays no heartbeat"

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(TIMEOUT_S) == ExitCode.ASKED_TO_STOP


def start(stack: ExitStack, fake: FakeNvml, folder: Path, program: str) -> "subprocess.Popen[bytes]":
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", WATCHED_GPU: "0"}
    command = [sys.executable, "-m", "daemons.main", program, "--node", str(folder / "node.toml")]
    process = stack.enter_context(
        subprocess.Popen(command, cwd=ROOT, env={**fake.environment, **quiet}, stderr=subprocess.DEVNULL)
    )
    stack.callback(process.kill)
    return process


def until(driver: Digend, holds: Callable[[NodeView], bool]) -> NodeView:
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        nodes = driver.nodes() if Path(driver.address.removeprefix("ipc://")).exists() else ()
        for node in nodes:
            if node.name == "n/generator/0" and holds(node):
                return node
        assert time.monotonic() < end_s, nodes
        time.sleep(0.1)


def told(*words: str) -> str:
    result = CliRunner().invoke(digenctl, words)
    assert result.exit_code == 0, result.output
    return result.stdout
