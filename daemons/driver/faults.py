"""What to do with a peer that sends no message that it may send: say so to it and to the log, seldom.

Invariant: garbage costs at most one reply and one log line a peer and minute, and never the driver's life.
"""

from digend.exitcodes import ExitCode
from digend.net.server import Fault
from digend.telemetry.logs import logger
from digend.wire.errors import NotAllowed, NotListed, ProtocolError, WrongProtocol
from digend.wire.protocol import Refused
from digend.wire.replies import ErrorReply
from digend.wire.verbs import FROM_CLIENT

EVERY_NS = 60_000_000_000
REMEMBERED = 1024
_REQUESTS = {cls.__name__ for cls in FROM_CLIENT}


class Faults:
    """Remembers when each peer was last told; the oldest are forgotten past `REMEMBERED`."""

    def __init__(self) -> None:
        self._told_ns: dict[bytes, int] = {}

    def reply(self, fault: Fault, now_ns: int) -> Refused | ErrorReply | None:
        """What to tell the peer, if it is time to."""
        told = self._told_ns.pop(fault.peer, None)
        recent = told is not None and now_ns - told < EVERY_NS
        self._told_ns[fault.peer] = told if recent and told is not None else now_ns
        while len(self._told_ns) > REMEMBERED:
            del self._told_ns[next(iter(self._told_ns))]
        if recent:
            return None
        logger().warning("not a message", peer=fault.peer.hex(), error=str(fault.error))
        return _told(fault.error)


def _told(error: ProtocolError) -> Refused | ErrorReply:
    """A request that this peer may not make ends like any other that the driver says no to."""
    if isinstance(error, NotAllowed) and error.name in _REQUESTS:
        return ErrorReply(request="", code=int(ExitCode.NOT_PERMITTED), message=str(error))
    return Refused(reason=str(error), fatal=isinstance(error, WrongProtocol | NotListed))
