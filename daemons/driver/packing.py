"""Events, commands, records and job details as bytes for the journal: the wire's codec, pressed together.

Invariant: equal lists give equal bytes, so that a replay is compared byte for byte.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import cast, get_args

import msgpack

from broker.commands import Command, Write
from broker.events import Event
from digend.wire import codec
from digend.wire.errors import ProtocolError
from digend.wire.records import Record
from digend.wire.views import JobDetail

SMALL_BYTES = 1024
_EVENTS = get_args(Event)
_WRITE = codec.named(Write.__name__, msgpack.packb({"record": None})[:-1])
"""A `Write` up to the fields of its record."""


def press(items: Sequence[Event] | Sequence[Command]) -> bytes:
    """A list of events or of commands, compressed."""
    return _pressed(packed(items))


def _pressed(data: bytes) -> bytes:
    """A few events are kept as they are, inside zlib's frame: to press them takes longer than to write them."""
    return zlib.compress(data, 1 if len(data) > SMALL_BYTES else 0)


def packed(items: Sequence[Event] | Sequence[Command]) -> bytes:
    """The same, not compressed: what a replay compares."""
    body: bytes = msgpack.packb([codec.encode(item) for item in items])
    return body


def fields_of(command: Command) -> bytes:
    """What is packed once for all that a command is written to: the journal, the wire; of a `Write` the record's."""
    return codec.packed_fields(command.record if isinstance(command, Write) else command)


def press_commands(commands: Sequence[Command], fields: Sequence[bytes]) -> bytes:
    """As `press`, of commands whose `fields_of` is known."""
    items = [
        _WRITE + packed if isinstance(command, Write) else codec.named(type(command).__name__, packed)
        for command, packed in zip(commands, fields, strict=True)
    ]
    return _pressed(msgpack.packb(items))


def record_row(fields: bytes) -> bytes:
    """As `one`, of a record whose fields are packed."""
    return codec.named(Record.__name__, fields)


def unpress(data: bytes) -> bytes:
    """What `packed` gave. Raises ValueError on damage."""
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise ValueError(f"damaged: {error}") from error


def events(data: bytes) -> tuple[Event, ...]:
    """The events of a pressed list. Raises ValueError on damage."""
    return tuple(cast("Event", _read(item, _EVENTS)) for item in _items(data))


def chosen(data: bytes, wanted: tuple[type, ...]) -> Iterator[object]:
    """Items of a pressed list that are of a wanted type, in order; others are not decoded. ValueError on damage."""
    names = {cls.__name__ for cls in wanted}
    for item in _items(data):
        if _name(item) in names:
            yield _read(item, wanted)


def one(item: Record | JobDetail) -> bytes:
    return codec.encode(item)


def record(data: bytes) -> Record:
    return cast("Record", _read(data, (Record,)))


def detail(data: bytes) -> JobDetail:
    return cast("JobDetail", _read(data, (JobDetail,)))


def named_fields(data: bytes) -> list[tuple[str, dict[str, object]]]:
    """Type and fields of each item in a packed list, to show where two replays differ."""
    items = (msgpack.unpackb(item, max_bin_len=len(item) + 1) for item in msgpack.unpackb(data))
    return [(name, fields) for _, name, fields in items]


def equal(then: bytes, now: bytes) -> bool:
    """Whether two packed lists say the same, also where one was packed under another protocol."""
    return then == now or named_fields(then) == named_fields(now)


def _items(data: bytes) -> list[bytes]:
    try:
        found = msgpack.unpackb(unpress(data), max_bin_len=2**31 - 1)
    except msgpack.UnpackException as error:
        raise ValueError(f"damaged: {error}") from error
    return cast("list[bytes]", found)


def _name(item: bytes) -> object:
    """The type that an item says it is of."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(item)
    unpacker.read_array_header()
    unpacker.skip()
    return cast("object", unpacker.unpack())


def _read(data: bytes, allowed: tuple[type, ...]) -> object:
    try:
        return cast("object", codec.decode(data, allowed, limit=None))
    except ProtocolError as error:
        raise ValueError(f"damaged: {error}") from error
