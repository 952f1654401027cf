"""A machine of the lab as tests see it: commands, units, journal, files.

Owns one booted machine (machine.sh) and how digend is installed in it: an environment at /opt/digend that borrows the
packages of the one that runs the tests, units by `digend install-units`, settings in /etc/digend, digend enabled.
Invariant: nothing of it is left after `booted`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from tests.e2e.cluster import wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("machine.sh")
PROGRAMS = {"digend": "daemons.main", "digenctl": "clients.main"}
SOURCE, PACKAGES = "/opt/lab/source", "/opt/lab/packages"
"""Where the machine sees this checkout and the packages that it needs."""

SETTINGS = "/etc/digend/digend.toml"

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Host:
    """A running machine."""

    folder: Path

    def execute(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command, run as root, however it ends."""
        return _machine("exec", self.folder, *words, timeout_s=PATIENCE_S)

    def run(self, *words: str) -> str:
        """Output of a command that must succeed."""
        done = self.execute(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def systemctl(self, *words: str) -> str:
        return self.run("systemctl", *words)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--value", "-p", name, unit).strip()

    def becomes(self, unit: str, name: str, value: str) -> None:
        """Waits until a property has a value."""
        wait_until(lambda: self.show(unit, name) == value, f"{name} of {unit} is {value}", PATIENCE_S)

    def replaced(self, unit: str, pid: str) -> str:
        """Waits until a unit is ready with another process; returns its id."""
        wait_until(
            lambda: self.show(unit, "MainPID") not in ("0", pid) and self.show(unit, "ActiveState") == "active",
            f"{unit} was started again",
            PATIENCE_S,
        )
        return self.show(unit, "MainPID")

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        """Entries of the journal, oldest first."""
        self.run("journalctl", "--sync")
        lines = self.run("journalctl", "--all", "--output=json", *matches).splitlines()
        return [json.loads(line) for line in lines]

    def says(self, unit: str, text: str) -> bool:
        """Whether a line of the unit's journal has `text` in it."""
        return any(text in str(entry.get("MESSAGE")) for entry in self.journal("-u", unit))

    def digenctl(self, *words: str) -> Any:
        """What a verb of digenctl prints with --json."""
        return json.loads(self.run("/opt/digend/bin/digenctl", *words, "--json"))

    def write(self, path: str, text: str) -> None:
        inside = Path("/proc", (self.folder / "leader").read_text().strip(), "root", path.lstrip("/"))
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text, encoding="utf-8")

    def configure(self, **table: Any) -> None:
        """Writes the settings of the box."""
        self.write(SETTINGS, settings_file(**table))


def settings_file(**table: Any) -> str:
    return tomli_w.dumps({"name": "lab", **table})


@contextmanager
def booted(folder: Path, namespace: str = "", **table: Any) -> Iterator[Host]:
    """A machine with digend installed, enabled and started by the boot, with `table` in its settings.

    `namespace`: the network namespace that it joins, where it is not alone.
    """
    try:
        prepare(folder / "prep", table)
        binds = [f"--bind-ro={ROOT}:{SOURCE}", f"--bind-ro={packages()}:{PACKAGES}"]
        joined = {"LAB_NETNS": f"/run/netns/{namespace}"} if namespace else {}
        done = _machine("up", folder, *binds, timeout_s=PATIENCE_S, environ=joined)
        assert done.returncode == 0, done.stdout + done.stderr
        yield Host(folder)
    finally:
        _machine("down", folder, timeout_s=PATIENCE_S)


def prepare(prep: Path, table: Mapping[str, Any]) -> None:
    """What docs/operate.md says, done below `prep` before the machine runs."""
    make_environment(prep / "opt" / "digend")
    install = [sys.executable, "-m", "daemons.main", "install-units"]
    subprocess.run(
        [*install, "--prefix", str(prep / "usr/local"), "--digend", "/opt/digend/bin/digend"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (prep / "etc/digend").mkdir(parents=True)
    (prep / SETTINGS.lstrip("/")).write_text(settings_file(**table), encoding="utf-8")
    for name in ("passwd", "group", "shadow", "gshadow"):
        shutil.copy2(f"/etc/{name}", prep / "etc" / name)
    description = prep / "usr/local/lib/sysusers.d/digend.conf"
    subprocess.run(["systemd-sysusers", f"--root={prep}", str(description)], check=True, capture_output=True)
    subprocess.run(["systemctl", f"--root={prep}", "enable", "digend"], check=True, capture_output=True)


def make_environment(folder: Path) -> None:
    """What `python3 -m venv /opt/digend` and pip would make, with the packages in another place."""
    subprocess.run([interpreter(), "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "lab.pth").write_text(f"{SOURCE}\n{PACKAGES}\n", encoding="utf-8")
    for name, module in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f"#!/opt/digend/bin/python\nfrom {module} import main\n\nmain()\n", encoding="utf-8")
        program.chmod(0o755)


def interpreter() -> str:
    """A Python that can use this one's packages and that is in no home folder, which units do not see.

    Raises LookupError where there is none.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in ("/usr/bin", "/usr/local/bin", "/opt/python/bin"):
        if Path(folder, version).exists():
            return f"{folder}/{version}"
    raise LookupError(f"no {version} outside of home folders")


def packages() -> Path:
    """The folder with torch and the rest."""
    return Path(tomli_w.__file__).parents[1]


def _machine(
    verb: str, folder: Path, *words: str, timeout_s: float, environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", str(SCRIPT), verb, str(folder), *words],
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
