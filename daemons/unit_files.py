"""systemd's units for what settings name, and `digend install-units`, which writes them.

Owns where the files go and what is filled in; what they say is in the folder `systemd` (beside this file in the
package, a link to the top level in a checkout). Starts nothing and asks systemd nothing. Invariant: no mark such as
`@USER@` is left in what is written.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from daemons.children import Program, programs
from digend.config.node import NodeConfig

HOMES = ("/home", "/root", "/run/user")
"""Folders that a sandboxed unit does not see."""

FRAGMENTS = ("sandbox", "daemon", "worker")
GENERATOR = "digend-instances"


class CannotInstall(Exception):
    """The units would not work; the message says what to mend."""


def unit_name(program: Program) -> str:
    """The unit that runs a program of a node."""
    slot = "" if program.slot is None else f"@{program.slot}"
    return f"digend-{program.role}{slot}.service"


def instances(node: NodeConfig) -> list[str]:
    """The units of a node, in the order of starting: what the systemd generator makes digend.service want."""
    return [unit_name(program) for program in programs(node)]


def install(prefix: Path, user: str, digend: Path) -> list[Path]:
    """Writes units, systemd generator and the user's description below `prefix`/lib; returns what was written.

    `digend` is the program that the units start. Raises CannotInstall where they could not start it, OSError where a
    file cannot be written.
    """
    check_program(digend)
    marks = {"USER": user, "DIGEND": str(digend)}
    written = []
    for path, text, mode in _rendered(prefix / "lib", marks):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        written.append(path)
    return written


def next_steps(user: str) -> str:
    """What to do after `install`, for the person who called it."""
    return f"""next, as root:
  systemd-sysusers               # makes the user {user}
  editor /etc/digend/digend.toml # what runs on this box
  systemctl daemon-reload
  systemctl enable --now digend"""


def check_program(digend: Path) -> None:
    """Raises CannotInstall: a relative path, or a program (or its interpreter) in a home folder."""
    if not digend.is_absolute() or re.search(r"[\s%$\"'\\;]", str(digend)):
        raise CannotInstall(f"{digend}: the path must be absolute, without spaces and quotes")
    for needed in (digend, *_interpreter(digend)):
        home = next((home for home in HOMES if needed.resolve().is_relative_to(home)), None)
        if home:
            raise CannotInstall(
                f"{digend} needs {needed.resolve()}, and units do not see {home}: install digend elsewhere, such as "
                "/usr/bin/python3 -m venv /opt/digend, then /opt/digend/bin/digend install-units"
            )


def _interpreter(script: Path) -> Iterator[Path]:
    """What the first line of a script names."""
    if script.is_file():
        with script.open("rb") as file:
            first = file.readline(4096)
        if first.startswith(b"#!/"):
            yield Path(first[2:].decode("utf-8", "replace").split()[0])


def _rendered(lib: Path, marks: dict[str, str]) -> Iterator[tuple[Path, str, int]]:
    """(path, text, mode) of every file."""
    fragments = {name.upper(): _without_notes(_read(f"{name}.conf")) for name in FRAGMENTS}
    for name in sorted(entry.name for entry in files("daemons").joinpath("systemd").iterdir()):
        if name.endswith(".service"):
            yield lib / "systemd" / "system" / name, _filled(_read(name), {**fragments, **marks}), 0o644
    yield lib / "systemd" / "system-generators" / GENERATOR, _read(GENERATOR), 0o755
    yield lib / "sysusers.d" / "digend.conf", _filled(_without_notes(_read("digend.sysusers")), marks), 0o644


def _read(name: str) -> str:
    return files("daemons").joinpath("systemd", name).read_text(encoding="utf-8")


def _without_notes(text: str) -> str:
    """Without the lines that are about the file itself (`##`)."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("##"))


def _filled(text: str, marks: dict[str, str]) -> str:
    """Fragments come first in `marks`, because they have marks themselves. An unknown mark is a KeyError."""
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    if left := re.search(r"@[A-Z]+@", text):
        raise KeyError(left[0])
    return text.rstrip("\n") + "\n"
