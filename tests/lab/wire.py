"""A wire between two network namespaces that can be slow, lossy or cut: for kernels without `tc netem`.

    python3 wire.py SOCKET NAMESPACE INTERFACE ADDRESS/BITS NAMESPACE INTERFACE ADDRESS/BITS

A NAMESPACE is a name of `ip netns`, or a path such as /proc/PID/ns/net. Each gets a TAP device; frames are relayed
between the two, after the delay and unless they are lost. Prints `ready`, then changes with each datagram on SOCKET, a
JSON object with keys of `Quality`. Needs root; standard library only, so that it runs under any interpreter.

Invariant: frames of one direction are never reordered by equal delays; what is in flight when the wire is cut arrives.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
MTU = 1500
BURST = 64
"""Frames taken from one side before the other has its turn."""


@dataclasses.dataclass(slots=True)
class Quality:
    """How the wire is. `cut_ab` and `cut_ba` cut one direction: from the first namespace to the second, and back."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    cut: bool = False
    cut_ab: bool = False
    cut_ba: bool = False


class Wire:
    """Frames in flight between the files of two TAP devices."""

    def __init__(self, a: int, b: int, rng: random.Random) -> None:
        self.quality = Quality()
        self._other = {a: b, b: a}
        self._first = a
        self._rng = rng
        self._flight: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def take(self, side: int, now_s: float) -> None:
        """What the kernel wants to send at one side."""
        for _ in range(BURST):
            try:
                frame = os.read(side, MTU + 100)
            except BlockingIOError:
                return
            if not self._lost(side):
                self._number += 1
                jitter_ms = self._rng.uniform(-1, 1) * self.quality.jitter_ms
                due_s = now_s + max(0.0, self.quality.delay_ms + jitter_ms) / 1000
                heapq.heappush(self._flight, (due_s, self._number, self._other[side], frame))

    def deliver(self, now_s: float) -> None:
        """What has arrived by now."""
        while self._flight and self._flight[0][0] <= now_s:
            _, _, side, frame = heapq.heappop(self._flight)
            try:
                os.write(side, frame)
            except OSError:
                continue  # its queue is full, or the interface is down: lost, as on any wire

    def wait_s(self, now_s: float) -> float | None:
        """Until the next arrival; None where nothing is in flight."""
        return max(0.0, self._flight[0][0] - now_s) if self._flight else None

    def _lost(self, side: int) -> bool:
        quality = self.quality
        one_way = quality.cut_ab if side == self._first else quality.cut_ba
        return quality.cut or one_way or self._rng.random() < quality.loss


def enter(namespace: str) -> None:
    """This process's network is that one's from now on. Raises OSError."""
    path = namespace if "/" in namespace else f"/run/netns/{namespace}"
    with open(path) as file:  # noqa: PTH123  # only its descriptor is wanted
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def tap(namespace: str, interface: str, address: str) -> int:
    """The file of a new TAP device in a namespace, which this process enters."""
    enter(namespace)
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", interface.encode(), IFF_TAP | IFF_NO_PI))
    for command in (
        "link set lo up",
        f"address add {address} dev {interface}",
        f"link set {interface} mtu {MTU} txqueuelen 2000 up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return file


def run(wire: Wire, sides: tuple[int, int], control: socket.socket) -> None:
    """Relays for ever."""
    selector = selectors.DefaultSelector()
    for file in (*sides, control):
        selector.register(file, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select(wire.wait_s(time.monotonic())):
            if key.fileobj is control:
                wire.quality = dataclasses.replace(wire.quality, **json.loads(control.recv(4096)))
            else:
                wire.take(key.fd, time.monotonic())
        wire.deliver(time.monotonic())


def main(path: str, *ends: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        control.bind(path)
        sides = (tap(*ends[:3]), tap(*ends[3:]))
        run(Wire(*sides, random.Random(0)), sides, control)


if __name__ == "__main__":
    main(*sys.argv[1:])
