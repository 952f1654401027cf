"""The core's state, and what was read of its records, as bytes: so that a restart need not step through all batches.

Owns the form: a table of objects, each once, with references between them, so that what is one object there is one
object again. Must not know what the state means. Invariants: no class is made but those of the core, the wire and the
telemetry, none of their code runs; a snapshot whose classes have other fields than those of now is refused as a whole,
and the batches, which are all still there, are stepped through instead.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import msgpack

from broker.core import Core
from broker.state import State
from daemons.driver.summaries import Summaries
from digend import __version__
from digend.wire.protocol import PROTOCOL

_HOMES = ("broker.", "digend.wire.", "digend.rl.", "digend.telemetry.")
_PLAIN = (type(None), bool, int, float, str, bytes)
_WORD = 1 << 63


class SnapshotUnusable(Exception):
    """It was made by another digend, or is damaged."""


def taken(core: Core, summaries: Summaries) -> bytes:
    """Between two steps: commands of the last one are not in it."""
    root = (replace(core.state, out=[]), *summaries.state())
    table = _Table()
    return bytes(msgpack.packb([_stamp(), table.value(root), table.classes, table.objects], use_bin_type=True))


def restored(data: bytes) -> tuple[Core, Summaries]:
    """Raises SnapshotUnusable."""
    try:
        stamp, root, classes, objects = msgpack.unpackb(data, strict_map_key=False, use_list=True)
        if stamp != _stamp():
            raise SnapshotUnusable(f"made by {stamp}")
        state, readers, newest = _Reader(classes, objects).value(root)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, msgpack.UnpackException) as error:
        raise SnapshotUnusable(f"damaged: {error}") from error
    if not isinstance(state, State):
        raise SnapshotUnusable("damaged: no state in it")
    core = Core()
    core.state = state
    return core, Summaries(core, readers, newest)


def _stamp() -> str:
    return f"digend {__version__}, protocol {PROTOCOL}"


def _names(cls: type) -> list[str]:
    """Of what an object of the class has."""
    if is_dataclass(cls):
        return [field.name for field in fields(cls)]
    return sorted(vars(cls()))


class _Table:
    """Writes. A value is plain, or an array that begins with a letter: what it is."""

    def __init__(self) -> None:
        self.classes: list[list[Any]] = []
        self.objects: list[Any] = []
        self._known: dict[type, int] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []
        """No id is given twice while these live."""

    def value(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return ["e", self._class(type(value)), value.value]
        if type(value) in _PLAIN:
            big = type(value) is int and not -_WORD <= value < _WORD
            return ["i", str(value)] if big else value
        if type(value) is tuple:
            return ["t", *map(self.value, value)]
        if type(value) is frozenset:
            return ["z", *sorted(map(self.value, value))]
        if type(value) is Fraction:
            return ["f", str(value)]
        return ["r", self._reference(value)]

    def _reference(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.objects)
            self._alive.append(value)
            self.objects.append(None)
            self.objects[number] = self._object(value)
        return number

    def _object(self, value: Any) -> list[Any]:
        if type(value) is list:
            return ["l", *map(self.value, value)]
        if type(value) is dict or type(value) is Counter:
            letter = "d" if type(value) is dict else "c"
            return [letter, *(self.value(part) for item in value.items() for part in item)]
        if type(value) is deque:
            return ["q", value.maxlen, *map(self.value, value)]
        number = self._class(type(value))
        return ["o", number, *(self.value(getattr(value, name)) for name in self.classes[number][2])]

    def _class(self, cls: type) -> int:
        if cls not in self._known:
            if not cls.__module__.startswith(_HOMES):
                raise TypeError(f"{cls.__module__}.{cls.__qualname__} is not a part of the state")
            self._known[cls] = len(self.classes)
            names = [] if issubclass(cls, Enum) else _names(cls)
            self.classes.append([cls.__module__, cls.__qualname__, names])
        return self._known[cls]


class _Reader:
    """Reads: first every object without its contents, then the contents."""

    def __init__(self, classes: list[list[Any]], objects: list[list[Any]]) -> None:
        self._classes = [_found(*entry) for entry in classes]
        self._objects = [self._empty(entry) for entry in objects]
        for made, entry in zip(self._objects, objects, strict=True):
            self._fill(made, entry)

    def value(self, value: Any) -> Any:
        return self._READ[value[0]](self, value) if isinstance(value, list) else value

    _READ: ClassVar[dict[str, Callable[["_Reader", list[Any]], Any]]] = {
        "e": lambda self, value: self._classes[value[1]][0](value[2]),
        "i": lambda self, value: int(value[1]),
        "t": lambda self, value: tuple(map(self.value, value[1:])),
        "z": lambda self, value: frozenset(map(self.value, value[1:])),
        "f": lambda self, value: Fraction(value[1]),
        "r": lambda self, value: self._objects[value[1]],
    }

    def _empty(self, entry: list[Any]) -> Any:
        kind = entry[0]
        if kind == "o":
            return object.__new__(self._classes[entry[1]][0])
        return deque(maxlen=entry[1]) if kind == "q" else {"l": list, "d": dict, "c": Counter}[kind]()

    def _fill(self, made: Any, entry: list[Any]) -> None:
        kind = entry[0]
        if kind == "o":
            for name, value in zip(self._classes[entry[1]][1], entry[2:], strict=True):
                object.__setattr__(made, name, self.value(value))
        elif kind in ("d", "c"):
            for at in range(1, len(entry), 2):
                made[self.value(entry[at])] = self.value(entry[at + 1])
        else:
            made.extend(map(self.value, entry[2 if kind == "q" else 1 :]))


def _found(module: str, name: str, names: list[str]) -> tuple[type, list[str]]:
    """A class of now with the same fields. Raises SnapshotUnusable."""
    cls = getattr(sys.modules.get(module), name, None) if module.startswith(_HOMES) else None
    if not isinstance(cls, type) or (names and _names(cls) != names):
        raise SnapshotUnusable(f"{module}.{name} is another one now")
    return cls, names
