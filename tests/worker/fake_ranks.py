"""Ranks without torch: rank 0 listens, the others connect, and each waits for the other's word on a real socket.

As the real ones do, a lost peer ends whoever waits for it, `leave` ends what another thread waits for, and a rank that
follows answers nobody but rank 0. `WEDGED`: an epoch in which the engine does not come back at all.
"""

import socket
import threading
from contextlib import suppress

from digend.engines.protocols import Context, TaskFault
from digend.wire.ranks import Ranks

WEDGED = 99


class FakeRanks:
    def __init__(self) -> None:
        self._store: socket.socket | None = None
        self._peers: list[socket.socket] = []
        self._left = threading.Event()

    def open_store(self, host: str) -> str:
        if self._store is not None:
            self._store.close()
        self._store = socket.create_server((host, 0))
        return f"{host}:{self._store.getsockname()[1]}"

    def join(self, ranks: Ranks) -> None:
        self._left.clear()
        if ranks.epoch == WEDGED:
            threading.Event().wait()
        try:
            if ranks.rank == 0:
                self._gather(ranks)
            else:
                self._connect(ranks)
        except OSError as error:
            raise TaskFault("rank_lost", f"rank {ranks.rank}: not all ranks came: {error}", retry=True) from None

    def _gather(self, ranks: Ranks) -> None:
        assert self._store is not None
        self._store.settimeout(ranks.timeout_s)
        while len(self._peers) < ranks.size - 1:
            self._peers.append(self._store.accept()[0])
        for peer in self._peers:
            peer.sendall(b"go")

    def _connect(self, ranks: Ranks) -> None:
        host, _, port = ranks.store.rpartition(":")
        peer = socket.create_connection((host, int(port)), ranks.timeout_s)
        self._peers.append(peer)
        if peer.recv(2) != b"go":
            raise ConnectionError("rank 0 has gone")
        peer.settimeout(None)

    def follow(self, context: Context) -> None:
        """A byte of rank 0 is progress of one."""
        (peer,), done = self._peers, 0
        while word := self._word(peer):
            done += 1
            context.progress(done, 0)
            if word == b"!":
                return
        if not self._left.is_set():
            raise TaskFault("rank_lost", "rank 0 is gone", retry=True)

    def _word(self, peer: socket.socket) -> bytes:
        try:
            return peer.recv(1)
        except OSError:
            return b""

    def leave(self) -> None:
        self._left.set()
        peers, self._peers = self._peers, []
        for peer in peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()
        if self._store is not None:
            self._store.close()
            self._store = None
