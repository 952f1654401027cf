"""Every message round trips; whatever else a peer sends is a ProtocolError."""

import math
import random
import types
import zlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker import commands, events
from digend.wire import pages, protocol, pulls, replies, requests, verbs, workers
from digend.wire.checks import check_of
from digend.wire.codec import MAX_FIELDS_BYTES, MAX_ITEMS, PRESSED_FROM_BYTES, decode, encode, frame
from digend.wire.errors import Malformed, NotAllowed, ProtocolError, TooLarge, WrongProtocol
from digend.wire.protocol import MAX_MESSAGE_BYTES, PROTOCOL
from digend.wire.refs import BlobRef
from digend.wire.requests import Upload
from digend.wire.tasks import Receipt, ResetResult, UpdateItem, UpdateTask
from digend.wire.workers import Assign, Heartbeat, Records, TaskDone, Welcome

MESSAGES = sorted(
    verbs.TO_DRIVER | verbs.TO_WORKER | verbs.TO_CLIENT | verbs.TO_OWNER | verbs.FROM_OWNER, key=lambda t: t.__name__
)
JOURNALLED = [
    cls
    for module in (events, commands)
    for cls in vars(module).values()
    if is_dataclass(cls)
    and isinstance(cls, type)
    and cls.__module__ == module.__name__
    and cls.__name__ != "JobSubmitted"
]

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    str: st.text(max_size=8),
    bool: st.booleans(),
    bytes: st.binary(max_size=16),
    types.NoneType: st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that the type hint of a field allows."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return instances_of(hint)
    if origin is Annotated:
        return values_of(args[0])
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(arg) for arg in args))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(arg) for arg in args))
    assert origin is dict, hint
    return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)


def instances_of(cls: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls, include_extras=True)
    return st.deferred(lambda: st.builds(cls, **{field.name: values_of(hints[field.name]) for field in fields(cls)}))


@pytest.mark.parametrize("cls", MESSAGES + JOURNALLED, ids=lambda cls: cls.__name__)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_round_trip(cls: type, data: st.DataObject) -> None:
    message = data.draw(instances_of(cls))
    packed = encode(message)
    back = decode(packed, {cls}, limit=None)
    assert type(back) is cls
    assert repr(_sorted(back)) == repr(_sorted(message))  # repr: NaN is no equal of itself
    assert encode(back) == packed


def _sorted(value: Any) -> Any:
    """Dictionaries arrive sorted by key."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return tuple(_sorted(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), [(field.name, _sorted(getattr(value, field.name))) for field in fields(value)])
    return value


def test_every_message_has_a_direction() -> None:
    parts = {"Versions", "ForkOf", "HeldLease", "PreparedJob", "TensorSpec", "Manifest"}
    here = {
        name
        for module in (protocol, workers, requests, replies, pages, pulls)
        for name, cls in vars(module).items()
        if is_dataclass(cls) and cls.__module__ == module.__name__
    }
    assert here == parts | {cls.__name__ for cls in MESSAGES}
    assert not verbs.FROM_WORKER & verbs.FROM_CLIENT


def _packed(body: object, *, protocol: object = PROTOCOL, name: object = "Welcome") -> bytes:
    packed: bytes = msgpack.packb([protocol, name, body])
    return packed


HEAD = b"\x93" + msgpack.packb(PROTOCOL)
WELCOME = {"session": "s", "epoch": 1, "heartbeat_s": 1.0, "protocol": PROTOCOL}
BEAT = Heartbeat(session="s", seq=1, lease="l", done=2, total=8)


def test_equal_messages_give_equal_bytes() -> None:
    one = Records(session="s", records=(), configs={"a": "1", "b": "2"})
    other = Records(session="s", records=(), configs={"b": "2", "a": "1"})
    assert encode(one) == encode(other)
    whole = Welcome(session="s", epoch=1, heartbeat_s=1)
    assert encode(whole) == encode(Welcome(session="s", epoch=1, heartbeat_s=1.0))


def test_non_finite_floats_survive() -> None:
    for value in (math.nan, math.inf, -math.inf):
        back = decode(encode(Welcome(session="s", epoch=1, heartbeat_s=value)), {Welcome})
        assert repr(back.heartbeat_s) == repr(value)


def test_another_protocol_is_named_before_the_rest_is_read() -> None:
    for rest in (b"", b"\xc1\xff", msgpack.packb("Welcome")):
        with pytest.raises(WrongProtocol) as caught:
            decode(b"\x93" + msgpack.packb(PROTOCOL + 1) + rest, {Welcome})
        assert (caught.value.theirs, caught.value.ours) == (PROTOCOL + 1, PROTOCOL)


@pytest.mark.parametrize("name", ["Heartbeat", "NoSuchMessage", "Receipt", "x" * 500])
def test_a_name_that_may_not_be_sent_here_is_refused_before_its_fields(name: str) -> None:
    head = HEAD + msgpack.packb(name)
    with pytest.raises(NotAllowed) as caught:
        decode(head + b"\xc1 not msgpack", {Welcome})
    assert len(caught.value.name) <= 64


def test_size_is_checked_first() -> None:
    with pytest.raises(TooLarge):
        decode(b"\xc1" * (MAX_MESSAGE_BYTES + 1), {Welcome})
    with pytest.raises(TooLarge):
        decode(encode(BEAT), {Heartbeat}, limit=10)
    big = Upload(request="r", digest="d", offset=0, size=9, data=bytes(MAX_MESSAGE_BYTES))
    assert decode(encode(big), {Upload}, limit=None) == big


def test_a_task_on_thousands_of_samples_fits_a_frame() -> None:
    """Its items name the same blobs and levels again and again."""
    ref = BlobRef(owner="ipc:///tmp/digend/blobs/x", instance="i" * 32, id="b" * 32, num_bytes=10**6, digest="d" * 32)
    items = tuple(
        UpdateItem(
            prompt=f"p{number // 24:04d}",
            index=number % 24,
            advantage=number / 7,
            timesteps=(0, 1, 2),
            levels=(0.7,) * 3 + (0.0,) * 7,
            trajectory=ref,
            condition=ref,
        )
        for number in range(4000)
    )
    task = UpdateTask(
        job="j", incarnation=0, version=0, global_step=0, rollout=0, micro_batch=0, sigmas=(1.0, 0.0), items=items, z0=9
    )
    message = Assign(session="s", lease="l", attempt=0, lease_s=60.0, task=task)
    assert len(encode(message)) > 4 * MAX_MESSAGE_BYTES
    assert decode(frame(message), {Assign}) == message
    assert frame(BEAT) == encode(BEAT), "what is short travels as it is"


def test_pressed_fields_are_checked_like_others() -> None:
    def pressed(fields: bytes) -> bytes:
        return bytes(msgpack.packb([PROTOCOL, "Welcome", fields]))

    sound = msgpack.packb({"session": "s", "epoch": 1, "heartbeat_s": 1.0})
    assert decode(pressed(zlib.compress(sound)), {Welcome}) == Welcome(session="s", epoch=1, heartbeat_s=1.0)
    bomb = zlib.compress(bytes(8 * MAX_FIELDS_BYTES))
    for bad in (b"", b"x", sound, zlib.compress(sound)[:-1], zlib.compress(sound) + b"x", zlib.compress(b""), bomb):
        with pytest.raises(Malformed):
            decode(pressed(bad), {Welcome})
    for wrong in (sound + b"\xc0", msgpack.packb([1]), msgpack.packb(zlib.compress(sound))):
        with pytest.raises(Malformed):
            decode(pressed(zlib.compress(wrong)), {Welcome})
    with pytest.raises(NotAllowed):
        decode(pressed(zlib.compress(sound)), {Heartbeat})


def test_what_does_not_get_small_enough_is_too_large() -> None:
    with pytest.raises(TooLarge):
        frame(Upload(request="r", digest="d", offset=0, size=9, data=random.Random(0).randbytes(MAX_MESSAGE_BYTES)))
    with pytest.raises(TooLarge):
        frame(Upload(request="r", digest="d", offset=0, size=9, data=bytes(MAX_FIELDS_BYTES)))
    half = Upload(request="r", digest="d", offset=0, size=9, data=bytes(MAX_FIELDS_BYTES // 2))
    assert len(frame(half)) < PRESSED_FROM_BYTES
    assert decode(frame(half), {Upload}) == half


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epoch": "1"}, "Welcome.epoch"),
        ({"epoch": True}, "Welcome.epoch"),
        ({"epoch": 1.0}, "Welcome.epoch"),
        ({"epoch": None}, "Welcome.epoch"),
        ({"session": b"s"}, "Welcome.session"),
        ({"heartbeat_s": "1"}, "Welcome.heartbeat_s"),
        ({"colour": 1}, "Welcome.colour"),
    ],
)
def test_fields_are_checked_strictly(change: dict[str, object], reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(_packed(WELCOME | change), {Welcome})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Malformed, match=r"Welcome\.epoch"):
        decode(_packed({"session": "s", "heartbeat_s": 1.0}), {Welcome})


def test_nested_unknown_fields_are_refused() -> None:
    done = TaskDone(session="s", lease="l", result=ResetResult(), receipt=Receipt(total_ns=1, stages=()))
    unpacked = msgpack.unpackb(encode(done))
    unpacked[2]["receipt"]["colour"] = "red"
    with pytest.raises(Malformed, match="colour"):
        decode(msgpack.packb(unpacked), {TaskDone})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93",
        b"\x92" + HEAD[1:] + b"\xa7Welcome",
        encode(BEAT)[:-1],
        encode(BEAT) + b"\0",
        msgpack.packb({"protocol": 1}),
        _packed(WELCOME, protocol="1"),
        _packed(WELCOME, protocol=True),
        _packed(WELCOME, name=7),
        _packed([1, 2]),
        _packed(None),
        _packed({1: 2}),
        _packed({b"session": "s"}),
        _packed({**WELCOME, "epoch": msgpack.ExtType(5, b"x")}),
        _packed({**WELCOME, "epoch": msgpack.ExtType(5, b"")}),
        _packed({**WELCOME, "epoch": msgpack.Timestamp(1)}),
        HEAD + b"\xa7Welcome" + b"\x91" * 5000,
        HEAD + b"\xa7Welcome" + b"\x81\xa1a" * 5000,
        HEAD + b"\xa7Welcome\x81\xa7session\xa2\xff\xfe",
        HEAD + b"\xa7Welcome\xdd" + (MAX_ITEMS + 1).to_bytes(4, "big") + bytes(MAX_ITEMS + 1),
        HEAD + b"\xa7Welcome\xdd\xff\xff\xff\xff",
        HEAD + b"\xa7Welcome\xdf\xff\xff\xff\xff",
        HEAD + b"\xa7Welcome\xdb\xff\xff\xff\xff",
    ],
    ids=range(23),
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data, {Welcome, Heartbeat})


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data, {Welcome, Heartbeat, TaskDone})


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_message_decodes_or_is_a_protocol_error(data: st.DataObject) -> None:
    damaged = bytearray(
        encode(TaskDone(session="s", lease="l", result=ResetResult(), receipt=Receipt(total_ns=1, stages=())))
    )
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(damaged), {TaskDone})
    except ProtocolError:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """Nothing here can travel."""

    value: complex


def test_a_field_of_another_type_does_not_travel() -> None:
    with pytest.raises(TypeError, match=r"Odd\.value"):
        encode(Odd(value=1j))
    with pytest.raises(TypeError, match="complex"):
        check_of(Odd)


@pytest.mark.parametrize("types", [MESSAGES, JOURNALLED], ids=["wire", "journal"])
def test_a_name_means_one_type(types: list[type]) -> None:
    """A type is found by its name among those that are allowed."""
    assert len({cls.__name__ for cls in types}) == len(types)


def test_a_union_is_told_apart_by_its_discriminator_alone() -> None:
    done = TaskDone(session="s", lease="l", result=ResetResult(), receipt=Receipt(total_ns=1, stages=()))
    for kind in ("nap", "encode", None, 7):
        unpacked = msgpack.unpackb(encode(done))
        unpacked[2]["result"]["kind"] = kind
        with pytest.raises(Malformed, match=r"TaskDone\.result"):
            decode(msgpack.packb(unpacked), {TaskDone})


def test_an_integer_that_the_journal_has_no_room_for_is_malformed() -> None:
    beat = Heartbeat(session="s", seq=2**63)
    with pytest.raises(Malformed, match=r"Heartbeat\.seq: .* less than or equal to 9223372036854775807"):
        decode(encode(beat), {Heartbeat})
