"""Heartbeats with a GPU's state in the journal, and those of a journal from before there was one."""

import zlib

import msgpack

from broker.events import WorkerBeat
from daemons.driver.packing import events, packed, press
from digend.wire.devices import DeviceState

DEVICE = DeviceState(device="cuda:0", status="ok", age_s=1, sm_clock_mhz=1410, throttle=("thermal",), power_w=612.5)


def test_a_gpu_state_is_journalled() -> None:
    beats = (WorkerBeat(session="s", lease="l", done=3, device=DEVICE), WorkerBeat(session="s", lease=None, done=0))
    assert events(press(beats)) == beats
    assert packed(events(press(beats))) == packed(beats)


def test_an_older_journal_is_read() -> None:
    protocol, name, fields = msgpack.unpackb(msgpack.unpackb(packed((WorkerBeat(session="s", lease="l", done=3),)))[0])
    del fields["device"]
    older = zlib.compress(msgpack.packb([msgpack.packb([protocol, name, fields])]))
    assert events(older) == (WorkerBeat(session="s", lease="l", done=3),)
