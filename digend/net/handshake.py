"""What ZeroMQ tells of handshakes that failed, in words. Knows no socket.

A handshake that the other side refuses is not tried again, neither by ZeroMQ nor here: the same key would be refused
again. One that breaks off without a word is tried again for ever: the other side may be about to end, or to begin.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

EVENTS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)

FAILED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""What a server hears of who did not get as far as to show a key."""


def event_of(frames: Sequence[bytes]) -> int:
    """The event of a monitor's message. Source: zmq_socket_monitor(3); pyzmq's own parser imports asyncio."""
    event, _ = struct.unpack("=Hi", frames[0])
    return int(event)


@dataclass(frozen=True, slots=True)
class Happening:
    """One event of a connection: `broke` where it had stood or might have, `refused` in words where it never will."""

    refused: str = ""
    broke: bool = False
    unfinished: bool = False
    """The handshake broke off: nobody can say why."""


def happening(event: int, address: str, key: str | None) -> Happening:
    """What an event of `EVENTS` means for who connects to `address` with a public key, or without one."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return Happening(refused=f"{address} refused the key {key}: it is not in the list there (keys.toml)")
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return Happening(refused=f"{address} {_mismatch(key)}")
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return Happening(unfinished=True)
    return Happening(broke=event == zmq.EVENT_DISCONNECTED)


def unfinished(address: str, keyed: bool) -> str:
    """What is likely where handshakes break off again and again."""
    if keyed:
        return f"{address} ends every handshake: is the key of its role in keys.toml the one that it has?"
    return f"{address} ends every handshake: does it want keys?"


def _mismatch(key: str | None) -> str:
    if key is None:
        return "wants keys (or is no process of digend), and there are none here: digenctl keygen makes one"
    return "takes no keys (or is no process of digend), and this side has one: give it [keys] in its node file"
