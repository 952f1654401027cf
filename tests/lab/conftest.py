"""One machine for all of tests/lab, networks, or a skip that says what is missing.

DIGEND_LAB=required makes a failure of the skip. Where it can (root on Debian or a child of it), systemd-nspawn is
installed.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.lab.host import Host, booted, interpreter

NEEDED = {"systemd-nspawn": "systemd-container", "systemctl": "systemd", "ip": "iproute2"}
"""Program, and the package of Debian that it is in."""


def why_no_namespaces() -> str:
    """Why there can be no hosts with networks of their own here; empty where there can."""
    if os.geteuid() != 0:
        return "this needs root"
    if shutil.which("ip") is None and not installed(["iproute2"]):
        return "iproute2 is missing"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    name = f"dg-try-{uuid4().hex[:6]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    entered = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return (made.stderr or entered.stderr).strip()


def why_not() -> str:
    """Why no machine can be booted here; empty where one can."""
    if os.geteuid() != 0:
        return "this needs root"
    if not Path("/sys/fs/cgroup").is_dir() or "cgroup2" not in Path("/proc/mounts").read_text():
        return "there is no cgroup2 here"
    missing = {package for program, package in NEEDED.items() if shutil.which(program) is None}
    if missing and not installed(sorted(missing)):
        return f"these packages are missing: {', '.join(sorted(missing))}"
    try:
        interpreter()
    except LookupError as error:
        return str(error)
    return ""


def installed(packages: list[str]) -> bool:
    """Whether apt-get could install them."""
    if shutil.which("apt-get") is None:
        return False
    print(f"\ntests/lab: installing {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        if subprocess.run(["apt-get", *command], env=quiet, capture_output=True, check=False).returncode:
            return False
    return True


@pytest.fixture(scope="session")
def lab() -> None:
    """Machines can be booted."""
    skip_where(why_not(), "NOTHING OF SYSTEMD IS TESTED HERE")


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Hosts with networks of their own can be made."""
    skip_where(why_no_namespaces(), "NOTHING BETWEEN HOSTS IS TESTED HERE")


def skip_where(reason: str, what: str) -> None:
    if not reason:
        return
    if os.environ.get("DIGEND_LAB") == "required":
        pytest.fail(f"the lab cannot run here: {reason}")
    pytest.skip(f"SKIPPED, {what}: {reason}")


@pytest.fixture(scope="session")
def host(lab: None) -> Iterator[Host]:
    """A machine whose boot started the driver and the recorder. A test leaves both running."""
    folder = Path(tempfile.gettempdir(), f"digend-lab-{uuid4().hex[:8]}")
    with booted(folder, driver={}, recorder=True) as host:
        yield host
