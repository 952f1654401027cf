"""A daemon's keys: loaded before anything else, read again with the node file, refusals told to the log.

Owns the words. Must not know sockets.
"""

from daemons.reload import Reread
from digend.config.node import NodeConfig
from digend.net.security import Security
from digend.telemetry.logs import logger


def load(node: NodeConfig) -> Security | None:
    """The keys that the node file names, if it names some. Raises ConfigError."""
    return Security.load(node.keys) if node.keys else None


def told(public: str, address: str) -> None:
    """A handshake was refused."""
    if public:
        logger().warning("a key that is not listed was refused", key=public, address=address)
    else:
        logger().warning("an address that is not on the trusted fabric was refused", address=address)


def suspected(why: str) -> None:
    """Handshakes fail again and again, before a key is shown."""
    logger().warning("handshakes fail", reason=why)


def rereading(reread: Reread, security: Security | None) -> Reread:
    """`reread`, and the list of keys with it. Raises ConfigError, and the list stays what it was."""

    def both() -> NodeConfig:
        config = reread()
        if security is not None:
            added, removed = security.reload()
            if added or removed:
                logger().info("the list of keys changed", added=added, removed=removed)
        return config

    return both
