"""What every side of the control plane goes by: its number, its limit, and the one message that all may get.

One frame a message, msgpack of `[PROTOCOL, type name, fields]` (docs/protocol.md). Knows no other message: each
conversation is a module (`workers`, `requests` and `replies`, `pages`), so that a client that looks at the status makes
no class of a worker's task.
"""

from dataclasses import dataclass

PROTOCOL = 15
MAX_MESSAGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """HELLO or a message was refused; `fatal` means do not try again with the same configuration (exit 78)."""

    reason: str
    fatal: bool = False
