"""A wire, or a hub, between network namespaces that can be slow, lossy or cut: for kernels without `tc netem`.

    python3 wire.py SOCKET NAMESPACE INTERFACE ADDRESS/BITS [NAMESPACE INTERFACE ADDRESS/BITS]...

A NAMESPACE is a name of `ip netns`, or a path such as /proc/PID/ns/net. Each host gets a TAP device and with it a link;
a frame goes to the host that its address was seen at, or to all others, after the delay and unless it is lost. Prints
`ready`, then changes with each datagram on SOCKET, a JSON object with keys of `Quality`: those of all links, or of one
where it says `host` (0 is the first). Needs root; standard library only, so that it runs under any interpreter.

Invariant: frames from one host to another are never reordered by equal delays; what is in flight when a link is cut
arrives.
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
from collections.abc import Sequence

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
MTU = 1500
BURST = 64
"""Frames taken from one side before the other has its turn."""


QUEUE_S = 0.2
"""What waits for a link of limited rate; a frame that would wait longer is dropped, as a switch does."""


@dataclasses.dataclass(slots=True)
class Quality:
    """How a host's link is. Delay and loss are of what it sends; the rate (megabits a second, 0: none) limits either
    direction by itself. `cut_out`: nothing it sends arrives; `cut_in`: nothing arrives at it; `cut`: both."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    rate_mbit: float = 0.0
    cut: bool = False
    cut_out: bool = False
    cut_in: bool = False


@dataclasses.dataclass(slots=True)
class Direction:
    """One direction of a link: when it is free again."""

    free_s: float = 0.0

    def pass_through(self, size: int, rate_mbit: float, now_s: float) -> float | None:
        """When a frame of `size` bytes has passed, which comes at `now_s`; None where the queue is full."""
        if not rate_mbit:
            return now_s
        begin_s = max(now_s, self.free_s)
        if begin_s - now_s > QUEUE_S:
            return None
        self.free_s = begin_s + size * 8 / (rate_mbit * 1e6)
        return self.free_s


class Link:
    """A host's TAP device and its way to the hub and back."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.quality = Quality()
        self.out, self.back = Direction(), Direction()


class Hub:
    """Frames in flight between hosts; with two of them it is a wire."""

    def __init__(self, files: Sequence[int], rng: random.Random) -> None:
        self.links = [Link(file) for file in files]
        self._rng = rng
        self._seen_at: dict[bytes, Link] = {}
        self._flight: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def change(self, host: int | None = None, **quality: float | bool) -> None:
        for link in self.links if host is None else [self.links[host]]:
            link.quality = dataclasses.replace(link.quality, **quality)  # type: ignore[arg-type]  # JSON

    def take(self, sender: Link, now_s: float) -> None:
        """What the kernel of a host wants to send."""
        for _ in range(BURST):
            try:
                frame = os.read(sender.file, MTU + 100)
            except BlockingIOError:
                return
            self._seen_at[frame[6:12]] = sender
            known = self._seen_at.get(frame[:6])
            receivers = [known] if known else [link for link in self.links if link is not sender]
            self._send(sender, [link for link in receivers if link is not sender], frame, now_s)

    def _send(self, sender: Link, receivers: Sequence[Link], frame: bytes, now_s: float) -> None:
        quality = sender.quality
        if quality.cut or quality.cut_out or self._rng.random() < quality.loss:
            return
        left_s = sender.out.pass_through(len(frame), quality.rate_mbit, now_s)
        if left_s is None:
            return
        jitter_ms = self._rng.uniform(-1, 1) * quality.jitter_ms
        there_s = left_s + max(0.0, quality.delay_ms + jitter_ms) / 1000
        for link in receivers:
            due_s = link.back.pass_through(len(frame), link.quality.rate_mbit, there_s)
            if due_s is not None and not (link.quality.cut or link.quality.cut_in):
                self._number += 1
                heapq.heappush(self._flight, (due_s, self._number, link.file, frame))

    def deliver(self, now_s: float) -> None:
        """What has arrived by now."""
        while self._flight and self._flight[0][0] <= now_s:
            _, _, file, frame = heapq.heappop(self._flight)
            try:
                os.write(file, frame)
            except OSError:
                continue  # its queue is full, or the interface is down: lost, as on any wire

    def wait_s(self, now_s: float) -> float | None:
        """Until the next arrival; None where nothing is in flight."""
        return max(0.0, self._flight[0][0] - now_s) if self._flight else None


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


def run(hub: Hub, control: socket.socket) -> None:
    """Relays for ever."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    for link in hub.links:
        selector.register(link.file, selectors.EVENT_READ, link)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select(hub.wait_s(time.monotonic())):
            if key.fileobj is control:
                hub.change(**json.loads(control.recv(4096)))
            else:
                hub.take(key.data, time.monotonic())
        hub.deliver(time.monotonic())


def main(path: str, *ends: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        control.bind(path)
        files = [tap(*ends[at : at + 3]) for at in range(0, len(ends), 3)]
        run(Hub(files, random.Random(0)), control)


if __name__ == "__main__":
    main(*sys.argv[1:])
