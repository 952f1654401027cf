"""scripts/setup in a checkout without anything else: `python3`, `apt-get` and `nvidia-smi` are stand-ins that write
down how they are called. What a real set-up installs is seen by whoever runs the tests: they run in it."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.packaging.conftest import ROOT

PYTHON = """#!/bin/sh
# Code is run by the real python, under STAND_IN_VERSION; an environment is this script; pip is written down.
case "$*" in
    --version) echo "Python ${STAND_IN_VERSION:-3.12.1}" ;;
    *version_info*) [ "${STAND_IN_VERSION:-3.12.1}" != 3.9.2 ] && exec REAL_PYTHON "$@" ;;
    *ensurepip*) [ ! -e "$STAND_IN/no-venv" ] ;;
    "-m venv --clear "*) for folder; do :; done; rm -rf "$folder"; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python"
        echo "#!$folder/bin/python" >"$folder/bin/pip" ;;
    "- "*/bin/pip) # the check whether .venv works, as if this script were its interpreter
        code=$(sed "s#^import os, re, sys, pip#import os, re, sys; sys.prefix = '${0%/bin/python}'#")
        exec REAL_PYTHON -c "$code" "$2" ;;
    "-m pip"*) echo "pip $*" >>"$STAND_IN/calls"; [ ! -e "$STAND_IN/no-network" ] ;;
    *) exec REAL_PYTHON "$@" ;;
esac
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$STAND_IN/calls"
[ "$1" = install ] && rm -f "$STAND_IN/no-venv"
exit 0
"""
IDENTITY = """#!/bin/sh
echo "${STAND_IN_UID:-0}"
"""
TOOLS = ("sh", "cat", "cksum", "dirname", "mkdir", "rm", "cp", "sed")


class Checkout:
    """A checkout with set-up's own files, on a machine whose programs are TOOLS and stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.state = folder / "state"
        self.programs = folder / "programs"
        for made in (self.root / "scripts", self.state, self.programs):
            made.mkdir(parents=True)
        shutil.copy(ROOT / "scripts/setup", self.root / "scripts/setup")
        (self.root / "constraints.txt").write_text("torch==2.0\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        for tool in TOOLS:
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)
        self.stand_in("id", IDENTITY)

    def stand_in(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text.replace("REAL_PYTHON", os.path.realpath(sys.executable)))
        path.chmod(0o755)

    def set_up(self, **environment: str) -> "CompletedProcess[str]":
        places = {"PATH": str(self.programs), "STAND_IN": str(self.state), "DIGEND_TORCH_INDEX": "http://127.0.0.1:9"}
        command = ["sh", str(self.root / "scripts/setup")]
        return subprocess.run(command, env=places | environment, capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        """How the stand-ins were called since the last time."""
        path = self.state / "calls"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text.splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    made.stand_in("python3", PYTHON)
    return made


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


@contextmanager
def torch_index() -> Iterator[str]:
    """A server that has a page for torch."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/cpu/torch/" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/cpu"
        server.shutdown()
        thread.join()


def test_installs_once_with_the_constraints(checkout: Checkout) -> None:
    done = checkout.set_up()
    assert done.returncode == 0, done.stderr
    constraints = f"pip -m pip install --quiet -c {checkout.root}/constraints.txt"
    assert checkout.calls() == [f"{constraints} torch", f"{constraints} -e {checkout.root}[dev]"]
    again = checkout.set_up()
    assert (again.returncode, again.stdout, checkout.calls()) == (0, "", [])


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_installs_again_after_a_change(checkout: Checkout, name: str) -> None:
    checkout.set_up()
    made = checkout.root / ".venv/bin/python"
    inode = made.stat().st_ino
    checkout.calls()
    (checkout.root / name).write_text("# changed\n")
    assert checkout.set_up().returncode == 0
    assert len(checkout.calls()) == 2
    assert made.stat().st_ino == inode, "the environment itself was good"


def test_keeps_an_environment_that_somebody_else_made(checkout: Checkout) -> None:
    checkout.set_up()
    (checkout.root / ".venv/digend-setup").unlink()
    (checkout.root / ".venv/mine").touch()
    assert checkout.set_up().returncode == 0
    assert (checkout.root / ".venv/mine").exists()


def test_keeps_an_environment_that_is_reached_by_a_link(checkout: Checkout) -> None:
    checkout.set_up()
    (checkout.root / ".venv/mine").touch()
    link = checkout.root.with_name("link")
    link.symlink_to(checkout.root)
    checkout.root = link
    assert (checkout.set_up().stdout, (checkout.root / ".venv/mine").exists()) == ("", True)


def test_makes_the_environment_anew_where_the_checkout_moved(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.calls()
    (checkout.root / ".venv/old").touch()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.set_up().returncode == 0
    assert len(checkout.calls()) == 2
    assert not (checkout.root / ".venv/old").exists()


def test_tries_again_after_an_install_that_failed(checkout: Checkout) -> None:
    (checkout.state / "no-network").touch()
    assert checkout.set_up().returncode != 0
    (checkout.state / "no-network").unlink()
    checkout.calls()
    assert checkout.set_up().returncode == 0
    assert len(checkout.calls()) == 2


@pytest.mark.skipif(has_gpu(), reason="this machine has an NVIDIA GPU")
def test_takes_torch_for_cpus_where_its_index_answers(checkout: Checkout) -> None:
    with torch_index() as index:
        assert checkout.set_up(DIGEND_TORCH_INDEX=index).returncode == 0
    torch, rest = checkout.calls()
    assert torch.endswith(f"--extra-index-url {index} torch")
    assert index not in rest


def test_takes_the_default_torch_where_there_is_a_gpu(checkout: Checkout) -> None:
    checkout.stand_in("nvidia-smi", "#!/bin/sh\n")
    with torch_index() as index:
        assert checkout.set_up(DIGEND_TORCH_INDEX=index).returncode == 0
    assert not [call for call in checkout.calls() if index in call]


def test_root_on_debian_mends_a_missing_venv(checkout: Checkout) -> None:
    (checkout.state / "no-venv").touch()
    checkout.stand_in("apt-get", APT_GET)
    done = checkout.set_up()
    assert done.returncode == 0, done.stderr
    assert checkout.calls()[:2] == ["apt-get update -qq", "apt-get install -y python3-venv"]


def test_others_are_told_what_mends_a_missing_venv(checkout: Checkout) -> None:
    (checkout.state / "no-venv").touch()
    checkout.stand_in("apt-get", APT_GET)
    done = checkout.set_up(STAND_IN_UID="1000")
    assert (done.returncode, checkout.calls()) == (1, [])
    assert "sudo apt-get install -y python3-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_old_python_is_named(checkout: Checkout) -> None:
    done = checkout.set_up(STAND_IN_VERSION="3.9.2")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed, Python 3.9.2 was found" in done.stderr
    assert "apt-get install -y python3.11 python3.11-venv" in done.stderr


def test_a_newer_python_beside_an_old_one_is_taken(checkout: Checkout) -> None:
    checkout.stand_in("python3.12", PYTHON.replace("${STAND_IN_VERSION:-3.12.1}", "3.12.1"))
    done = checkout.set_up(STAND_IN_VERSION="3.9.2")
    assert done.returncode == 0, done.stderr
    assert "making .venv with Python 3.12.1" in done.stdout


def test_two_set_ups_at_once_install_once(checkout: Checkout) -> None:
    threads = [threading.Thread(target=checkout.set_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(checkout.calls()) == 2


def test_scripts_are_executable() -> None:
    assert all(os.access(ROOT / script, os.X_OK) for script in ("scripts/setup", "scripts/demo", "scripts/test"))
