"""The `digend` command itself, with the real driver."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from daemons.ready import present
from digend import __version__
from tests.up.conftest import ROOT, TIMEOUT_S, gone


def digend(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daemons.main", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def node_file(folder: Path, text: str = "[driver]\n") -> str:
    path = folder / "node.toml"
    path.write_text('address = "ipc://d.sock"\nstate = "state"\n' + text, encoding="utf-8")
    return str(path)


def wait_for(path: Path) -> str:
    end = monotonic() + TIMEOUT_S
    while not path.exists() or not path.read_text(encoding="utf-8"):
        assert monotonic() < end, f"{path} does not appear"
        sleep(0.02)
    return path.read_text(encoding="utf-8")


def test_version_and_help() -> None:
    assert "torch" in digend("version").stdout
    helped = digend("--help")
    assert helped.returncode == 0
    for command in ("up", "driver", "generator", "trainer", "reward", "recorder", "doctor", "version"):
        assert command in helped.stdout
    assert "..." not in helped.stdout.partition("Commands:")[2], "what a command does is cut off"
    assert digend("--version").stdout == f"digend {__version__}\n"
    assert "lifeline" not in digend("driver", "--help").stdout


def test_usage_and_bad_configuration(folder: Path) -> None:
    assert digend("up", "--nod", "x").returncode == 2
    assert digend("generator", "--node", str(folder / "none.toml")).returncode == 78
    nowhere = digend("trainer", "--node", node_file(folder, '[trainer]\ninterface = "192.0.2.7"\n'))
    assert nowhere.returncode == 78
    assert "trainer.interface: no interface of this box has the address 192.0.2.7" in nowhere.stderr
    wrong = digend("up", node_file(folder, "[drivr]\n"))
    assert wrong.returncode == 78
    assert "driver" in wrong.stderr
    nothing = digend("up", node_file(folder, ""))
    assert nothing.returncode == 78
    assert "names no process" in nothing.stderr
    (folder / "state").touch()
    no_folder = digend("up", node_file(folder))
    assert no_folder.returncode == 78
    assert f"state: {folder}/state cannot be made: Not a directory" in no_folder.stderr
    (folder / "state").unlink()
    for option, path in (("--pid-file", "/proc/x"), ("--pid-file", str(folder)), ("--ready-file", "/no/such/ready")):
        refused = digend("up", node_file(folder), option, path)
        assert refused.returncode == 78
        assert f"{option} {path} cannot be written: " in refused.stderr


def test_up_from_ready_to_stopped(folder: Path) -> None:
    """Ready, the driver killed and back, a second `up` refused, stopped: 0, and nobody is left."""
    node, ready, pid = node_file(folder), folder / "ready", folder / "pid"
    address = f"ipc://{folder}/d.sock"
    with (folder / "log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "daemons.main", "up", node, "--ready-file", str(ready), "--pid-file", str(pid)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert wait_for(ready) == "ready\n"
        assert int(wait_for(pid)) == up.pid
        assert present(address) == set()
        second = digend("up", node, "--ready-file", str(ready), "--pid-file", str(pid))
        assert second.returncode == 78
        assert "another `digend up`" in second.stderr
        assert ready.exists(), "what the first one wrote is its own"
        assert int(pid.read_text()) == up.pid
        driver = children(up.pid)[0]
        os.kill(driver, signal.SIGKILL)
        assert gone(driver)
        end = monotonic() + TIMEOUT_S
        while present(address) is None:
            assert monotonic() < end, "the driver does not come back"
    finally:
        up.terminate()
        output, _ = up.communicate(timeout=30)
    assert up.returncode == 0
    assert output == "ready\n"
    assert f"the next step: digenctl submit JOB.toml --watch --node {node}" in (folder / "log").read_text()
    assert not ready.exists()
    assert not pid.exists()


def test_driver_does_not_outlive_a_killed_up(folder: Path) -> None:
    ready = folder / "ready"
    up = subprocess.Popen(
        [sys.executable, "-m", "daemons.main", "up", node_file(folder), "--ready-file", str(ready)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(ready)
        (driver,) = children(up.pid)
    finally:
        up.kill()
        up.wait()
    assert gone(driver)


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


def test_doctor_finds_nothing_wrong(folder: Path) -> None:
    found = digend("doctor", node_file(folder, '[driver]\n[trainer]\ndevice = "cpu"\nslots = 2\n'))
    assert found.returncode in (0, 3), found.stdout
    assert "error" not in found.stdout
    assert "no driver runs yet" in found.stdout
    assert "workers of this box only" in found.stdout


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('[driver]\n[trainer]\ndevice = "cuda:99"\n', "error   device cuda:99: torch sees"),
        ('reward_paths = ["nowhere"]\n[driver]\n', "is no folder"),
        ('[driver]\n[trainer]\ninterface = "192.0.2.7"\n', "no interface of this box has the address 192.0.2.7"),
        ('[driver]\n[generator]\ninterface = "192.0.2.7"\n', "generator.interface"),
    ],
)
def test_doctor_names_what_will_not_work(folder: Path, text: str, finding: str) -> None:
    found = digend("doctor", node_file(folder, text))
    assert found.returncode == 78
    assert finding in found.stdout


def test_doctor_warns_of_a_driver_that_is_not_there(folder: Path) -> None:
    found = digend("doctor", node_file(folder, ""))
    assert found.returncode == 3
    assert "no driver answers" in found.stdout


def test_doctor_names_a_clash(folder: Path) -> None:
    """A package `broker` that comes first on the path."""
    (folder / "broker").mkdir()
    (folder / "broker" / "__init__.py").write_text("", encoding="utf-8")
    program = (
        "import sys; from daemons.doctor import check_names; [print(f.level, f.message) for f in check_names(None)]"
    )
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = ['{folder}']; sys.path.append('{ROOT}'); {program}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"error `import broker` gives {folder.resolve()}/broker/__init__.py" in run.stdout
