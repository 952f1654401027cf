"""Sessions: which peer speaks for which worker, and how often its heartbeats are worth an event.

Owns the table of live sessions. Must not know sockets or what a worker does. Invariants: a name has at
most one live session; a session id is used once in the cluster's life (it carries the driver's epoch).
"""

from dataclasses import dataclass, replace

from daemons.driver.words import traffic
from digend.wire.views import NodeView
from digend.wire.workers import Heartbeat, Hello

BEAT_NS = 500_000_000
"""An unchanged heartbeat is passed on at least this far apart; workers send one a second."""


@dataclass(slots=True)
class Session:
    """A worker's life as the driver sees it."""

    id: str
    peer: bytes
    hello: Hello
    key: str = ""
    """Public key that it came with, and that all its messages must come with; "" without keys."""
    passed_ns: int = 0
    progress: tuple[str | None, int] = (None, 0)
    clock_ahead_s: float | None = None
    """Of its box's clock before this one, by the last heartbeat."""
    held_bytes: int = 0
    spooled_bytes: int = 0
    memory_limit_bytes: int | None = None
    spool_limit_bytes: int = 0
    full: bool = False
    problem: str = ""
    """What it said is wrong, by the last heartbeat."""


class Sessions:
    """Live sessions of one driver epoch. `encrypted`: whether what is said to the driver is."""

    def __init__(self, epoch: int, *, encrypted: bool = False) -> None:
        self._epoch = epoch
        self._encrypted = encrypted
        self._count = 0
        self._live: dict[str, Session] = {}
        self._roles: dict[bytes, str] = {}

    def open(self, peer: bytes, hello: Hello, key: str = "") -> tuple[Session, Session | None]:
        """A new session, and the one of the same name that it replaces."""
        earlier = next((each for each in self._live.values() if each.hello.name == hello.name), None)
        if earlier is not None:
            self.close(earlier.id)
        self._count += 1
        session = Session(f"s{self._epoch}.{self._count}", peer, hello, key)
        self._live[session.id] = session
        self._roles[peer] = hello.role
        return session, earlier

    def get(self, session: str, peer: bytes | None = None, key: str = "") -> Session | None:
        """The live session; after a reconnect it is reached at the peer that speaks for it now, with the same key."""
        found = self._live.get(session)
        if found is not None and peer is not None:
            if found.key != key:
                return None
            self._roles.pop(found.peer, None)
            self._roles[peer] = found.hello.role
            found.peer = peer
        return found

    def role_of(self, peer: bytes) -> str | None:
        """The role that a peer has taken in its live session."""
        return self._roles.get(peer)

    def problems(self) -> tuple[str, ...]:
        """What live processes say is wrong with them."""
        return tuple(f"{each.hello.name}: {each.problem}" for each in self._live.values() if each.problem)

    def seen(self, nodes: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        """The core's view of workers, with what only their sessions tell: host, run folders, clock, traffic,
        bytes that wait."""
        return tuple(self._seen(node) for node in nodes)

    def _seen(self, node: NodeView) -> NodeView:
        found = self._live.get(node.session)
        if found is None:
            return node
        return replace(
            node,
            host=found.hello.host,
            runs=found.hello.runs,
            clock_ahead_s=found.clock_ahead_s,
            held_bytes=found.held_bytes,
            spooled_bytes=found.spooled_bytes,
            memory_limit_bytes=found.memory_limit_bytes,
            spool_limit_bytes=found.spool_limit_bytes,
            traffic=traffic(found.hello, self._encrypted),
        )

    def close(self, session: str) -> Session | None:
        """Forgets a session; None if it was not live."""
        found = self._live.pop(session, None)
        if found is not None:
            self._roles.pop(found.peer, None)
        return found

    def worth_an_event(self, session: Session, beat: Heartbeat, now_ns: int) -> bool:
        """Whether the core should see this heartbeat: there is progress or other news, or the last is a while ago."""
        progress = (beat.lease, beat.done)
        if progress == session.progress and beat.full == session.full and now_ns - session.passed_ns < BEAT_NS:
            return False
        session.progress, session.full = progress, beat.full
        session.passed_ns = now_ns
        return True
