"""Messages to bytes and back: msgpack of `[PROTOCOL, type name, fields]`, long fields pressed.

Must not know sockets. Invariant: bytes from a peer are looked at in the order size, protocol version, name,
fields; whatever is wrong with them is a `ProtocolError`, never another exception. Equal messages give equal
bytes.
"""

import zlib
from collections.abc import Collection
from functools import cache
from typing import Any, NoReturn

import msgpack
from pydantic_core import ValidationError

from digend.wire.checks import check_of
from digend.wire.errors import Malformed, NotAllowed, TooLarge, WrongProtocol
from digend.wire.plain import plain
from digend.wire.protocol import MAX_MESSAGE_BYTES, PROTOCOL

MAX_ITEMS = 32 * 1024
"""Longest list or map in a limited message: memory is taken for the length that a header claims."""
PRESSED_FROM_BYTES = 32 * 1024
"""From here on a frame's fields travel as zlib bytes: a task on a thousand samples names the same blobs and levels over
and over."""
MAX_FIELDS_BYTES = 32 * MAX_MESSAGE_BYTES
"""What pressed fields may come to."""


def encode(message: object) -> bytes:
    """Raises TypeError for what is no dataclass of plain fields, OverflowError for an int past 64 bits.

    Sizes, and whether the other side may be told this, are the caller's business.
    """
    return named(type(message).__name__, packed_fields(message))


def packed_fields(message: object) -> bytes:
    """What stands behind the name, the longest part of the work: two messages with the same fields may share it."""
    packed: bytes = msgpack.packb(message, default=plain)
    return packed


def named(name: str, fields: bytes) -> bytes:
    """What `encode` gives for a message of that name with these packed fields."""
    return _beginning(PROTOCOL, name) + fields


def frame(message: object) -> bytes:
    """A message as a peer will take it. Raises TooLarge."""
    return frame_of(type(message).__name__, packed_fields(message))


def frame_of(name: str, fields: bytes) -> bytes:
    """The same, of packed fields."""
    data = named(name, fields)
    if len(data) > PRESSED_FROM_BYTES:
        if len(fields) > MAX_FIELDS_BYTES:
            raise TooLarge(len(fields), MAX_FIELDS_BYTES)
        data = named(name, msgpack.packb(zlib.compress(fields, 1)))
    if len(data) > MAX_MESSAGE_BYTES:
        raise TooLarge(len(data), MAX_MESSAGE_BYTES)
    return data


def decode(data: bytes | memoryview, allowed: Collection[type], *, limit: int | None = MAX_MESSAGE_BYTES) -> Any:
    """One of `allowed`, checked. Raises ProtocolError. `limit` in bytes; None only for bytes of our own, which may be
    of an earlier protocol: fields that were added since have their defaults."""
    if limit is not None and len(data) > limit:
        raise TooLarge(len(data), limit)
    unpacker = _unpacker(data, limit)
    try:
        cls = _head(unpacker, allowed, of_our_own=limit is None)
        body = unpacker.unpack()
        if unpacker.tell() != len(data):
            raise Malformed("bytes after its end")
        if isinstance(body, bytes):
            body = _unpressed(body, limit)
        return check_of(cls).validate_python(body)
    except ValidationError as error:
        raise Malformed(_first(error, cls)) from None
    except (ValueError, msgpack.UnpackException) as error:
        raise Malformed(str(error) or type(error).__name__) from None


@cache
def _beginning(protocol: int, name: str) -> bytes:
    """An array of three, and the first two of them."""
    whole: bytes = msgpack.packb([protocol, name, None])
    return whole[:-1]


def _unpressed(data: bytes, limit: int | None) -> Any:
    """The fields in `data`. Raises ValueError; nothing past `MAX_FIELDS_BYTES` is made."""
    try:
        stream = zlib.decompressobj()
        fields = stream.decompress(data, MAX_FIELDS_BYTES)
    except zlib.error as error:
        raise ValueError(f"pressed fields: {error}") from None
    if not stream.eof or stream.unused_data:
        raise ValueError(f"pressed fields that do not end, or are more than {MAX_FIELDS_BYTES} bytes")
    unpacker = _unpacker(fields, limit)
    found = unpacker.unpack()
    if unpacker.tell() != len(fields):
        raise ValueError("bytes after the end of pressed fields")
    return found


def _unpacker(data: bytes | memoryview, limit: int | None) -> msgpack.Unpacker:
    size = max(len(data), 1)
    items = size if limit is None else min(size, MAX_ITEMS)
    unpacker = msgpack.Unpacker(
        max_buffer_size=size,
        max_str_len=size,
        max_bin_len=size,
        max_array_len=items,
        max_map_len=items,
        max_ext_len=0,
        ext_hook=_no_extension,
        strict_map_key=True,
    )
    unpacker.feed(data)
    return unpacker


def _head(unpacker: msgpack.Unpacker, allowed: Collection[type], of_our_own: bool) -> type:
    """Reads version and name; leaves the fields unread."""
    if unpacker.read_array_header() != 3:
        raise Malformed("not [protocol, name, fields]")
    theirs = unpacker.unpack()
    if type(theirs) is not int:
        raise Malformed("the protocol version is no integer")
    if theirs != PROTOCOL and not of_our_own:
        raise WrongProtocol(theirs, PROTOCOL)
    name = unpacker.unpack()
    if not isinstance(name, str):
        raise Malformed("the type name is no text")
    for cls in allowed:
        if cls.__name__ == name:
            return cls
    raise NotAllowed(name[:64])


def _first(error: ValidationError, cls: type) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part)[:64] for part in (cls.__name__, *details["loc"]))
    return f"{where}: {details['msg']}"


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"msgpack extension {code} is not used here")
