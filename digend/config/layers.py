"""Where settings come from: tables laid over each other, and who said which key.

Weakest first: the defaults of a box, /etc/digend/digend.toml, /etc/digend/conf.d/*.toml, the user's file, variables,
flags; a node file takes the place of all files. Tables are merged key by key, any other value (a list too) is replaced
as a whole. Owns that order and the meaning of relative paths, which are taken from the file that says them, or from the
working folder. Must not know a model, so that a client that only asks for the address imports no pydantic.

Invariant: a layer's paths are absolute before it is laid over another.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digend.config.errors import ConfigError, Problem
from digend.config.overrides import OVERRIDE, apply_overrides, assign, parse_value
from digend.config.source import Table, absolute, read_source

ETC = "/etc/digend"
FILE = "digend.toml"
PREFIX = "DIGEND_"
NODE_VARIABLE, ETC_VARIABLE = "DIGEND_NODE", "DIGEND_ETC"

PATHS = ("address", "state", "runs", "reward_paths", "keys")
"""Keys that hold paths, or a table of them."""

NO_PATHS = ("trusted_fabric",)
"""Keys of such a table that hold none."""

BOX: Table = {
    "address": "ipc:///run/digend/driver.sock",
    "state": "/var/lib/digend",
    "runs": "/var/lib/digend/runs",
}
"""Where things are on a box that is configured in /etc/digend: the folders that systemd makes for the units."""

Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Places:
    """Which layers a process reads. `flags` are `key=value`."""

    node_file: str | None = None
    system: bool = False
    """Whether the user's file is left out."""
    flags: tuple[str, ...] = ()
    etc: str = ETC

    @classmethod
    def of(
        cls, node_file: str | None = None, *, system: bool = False, flags: Sequence[str] = (), environ: Environ
    ) -> "Places":
        """As the command line says, else the environment: DIGEND_NODE, DIGEND_ETC."""
        node_file = None if system else node_file or environ.get(NODE_VARIABLE) or None
        return cls(node_file, system, tuple(flags), environ.get(ETC_VARIABLE) or ETC)

    def options(self) -> list[str]:
        """The command line that means the same."""
        options = ["--node", self.node_file] if self.node_file else ["--system"] if self.system else []
        return options + [word for flag in self.flags for word in ("--set", flag)]

    @property
    def words(self) -> str:
        """What a message calls them."""
        return self.node_file or f"{self.etc}/{FILE}"


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says. `name` is a file, or what else it is; `where(key)` the very line or variable."""

    name: str
    table: Table
    where: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Layers:
    """All that was said, weakest first. `folder`: what a path that nobody said is relative to."""

    layers: tuple[Layer, ...]
    folder: str
    unknown: tuple[str, ...] = field(default=())
    """Variables that look like settings and are none."""

    @property
    def table(self) -> Table:
        """All of them, one over the other."""
        merged: Table = {}
        for layer in self.layers:
            merged = over(layer.table, merged)
        return merged

    def where(self, key: str) -> str:
        """file:line, variable or flag of a key, or of the nearest table above it."""
        part = key
        while part:
            for layer in reversed(self.layers):
                if _has(layer.table, part):
                    return layer.where(key)
            part = part[: max(part.rfind("."), part.rfind("["), 0)]
        return next((layer.name for layer in reversed(self.layers)), "defaults")

    def says(self, key: str) -> bool:
        """Whether any layer does."""
        return any(_has(layer.table, key) for layer in self.layers)

    def problem(self, key: str, message: str, *, value: str | None = None, nearest: str | None = None) -> Problem:
        return Problem(where=self.where(key), key=key, message=message, value=value, nearest=nearest)


def over(table: Table, below: Table) -> Table:
    """`table` laid over `below`."""
    merged = dict(below)
    for key, value in table.items():
        under = merged.get(key)
        merged[key] = over(value, under) if isinstance(value, dict) and isinstance(under, dict) else value
    return merged


def _has(table: Table, key: str) -> bool:
    place: Any = table
    for part in key.replace("[", ".[").split("."):
        if part.startswith("["):
            index = int(part[1:-1])
            if not (isinstance(place, list) and index < len(place)):
                return False
            place = place[index]
        elif isinstance(place, dict) and part in place:
            place = place[part]
        else:
            return False
    return True


def gather(
    places: Places, known: Collection[str], environ: Environ = os.environ, *, more: Sequence[Layer] = ()
) -> tuple[Layers, list[Problem]]:
    """The layers, and what of them cannot be read. `known` are the keys that variables may name; `more` comes between
    files and variables."""
    problems: list[Problem] = []
    files = list(_files(places, environ, problems))
    folder = os.getcwd()  # noqa: PTH109
    base: list[Layer] = []
    if places.node_file:
        folder = str(Path(places.node_file).absolute().parent)
    elif places.system or any(Path(layer.name).is_relative_to(places.etc) for layer in files):
        base = [Layer("the defaults of a box", BOX, lambda key: "default of a box")]
    variables, unknown = _variables(environ, known, problems)
    said = [layer for layer in (variables, _flags(places, problems)) if layer.table]
    return Layers((*base, *files, *more, *said), folder, unknown), problems


def file_names(places: Places, environ: Environ = os.environ) -> list[str]:
    """The files that are there to be read, weakest first. A node file is named whether it is there or not."""
    if places.node_file:
        return [places.node_file]
    folder = Path(places.etc)
    found = [path for path in (folder / FILE, *_pieces(folder / "conf.d")) if _there(path, hidden=True)]
    if not places.system and _there(user_file(environ), hidden=False):
        found.append(user_file(environ))
    return [str(path) for path in found]


def _pieces(folder: Path) -> list[Path]:
    """In the order of bytes, as the shell has them at boot. All of them stand for those that may not be listed."""
    try:
        names = [path for path in folder.iterdir() if path.name.endswith(".toml") and not path.name.startswith(".")]
    except PermissionError:
        return [folder / "*.toml"]
    except OSError:
        return []
    return sorted(names, key=lambda path: os.fsencode(path.name))


def _there(path: Path, *, hidden: bool) -> bool:
    """Whether a file is; `hidden` where the folder does not let us look. Settings of a box that somebody may not read
    are an error for them; a home that is not theirs (sudo leaves HOME as it was) says nothing to them."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except PermissionError:
        return hidden
    except OSError:
        return False


def user_file(environ: Environ = os.environ) -> Path:
    """The user's file, whether it is there or not."""
    home = environ.get("XDG_CONFIG_HOME", "")
    folder = Path(home) if Path(home).is_absolute() else Path(environ.get("HOME") or Path.home(), ".config")
    return folder / "digend" / FILE


def file_layer(path: str) -> Layer:
    """Raises ConfigError where the file cannot be read or is not TOML."""
    source = read_source(path)
    return Layer(path, rebased(source.table, Path(path).absolute().parent), source.where)


def _files(places: Places, environ: Environ, problems: list[Problem]) -> Iterator[Layer]:
    for path in file_names(places, environ):
        try:
            yield file_layer(path)
        except ConfigError as error:
            problems += error.problems


def _variables(environ: Environ, known: Collection[str], problems: list[Problem]) -> tuple[Layer, tuple[str, ...]]:
    """DIGEND_TIMING__LOST_S=20 is timing.lost_s; a value is TOML, and what is not TOML is a string."""
    table: Table = {}
    unknown = []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        if key not in known or name != variable(key):
            unknown.append(name)
        elif not assign(table, key.split("."), parse_value(environ[name])):
            problems.append(Problem(where=name, key=key, message="another variable says that its table is none"))

    def where(key: str) -> str:
        key = key.partition("[")[0]
        while key and variable(key) not in environ:
            key = key.rpartition(".")[0]
        return variable(key)

    return Layer("variables", rebased(table, os.getcwd()), where), tuple(unknown)  # noqa: PTH109


def variable(key: str) -> str:
    """The variable of a key."""
    return PREFIX + key.upper().replace(".", "__")


def _flags(places: Places, problems: list[Problem]) -> Layer:
    table: Table = {}
    try:
        apply_overrides(table, places.flags)
    except ConfigError as error:
        problems += error.problems
    return Layer(OVERRIDE, rebased(table, os.getcwd()), lambda key: OVERRIDE)  # noqa: PTH109


def rebased(table: Table, folder: str | os.PathLike[str]) -> Table:
    """With its relative paths taken from `folder`; what is no path is left to validation."""
    return {key: _rebased(value, folder) if key in PATHS else value for key, value in table.items()}


def _rebased(value: object, folder: str | os.PathLike[str]) -> object:
    if isinstance(value, list):
        return [_rebased(each, folder) for each in value]
    if isinstance(value, dict):
        return {key: each if key in NO_PATHS else _rebased(each, folder) for key, each in value.items()}
    if not isinstance(value, str) or "\0" in value:
        return value
    scheme, found, rest = value.partition("://")
    if not found:
        return absolute(folder, value)
    return f"ipc://{absolute(folder, rest)}" if scheme == "ipc" and rest else value
