"""What can be wrong with bytes from a peer. Raised when a message is decoded, never later."""


class ProtocolError(Exception):
    """The peer's fault: what it sent is not a message that may be sent here."""


class WrongProtocol(ProtocolError):
    """The peer speaks another version; nothing but the version was looked at."""

    def __init__(self, theirs: int, ours: int) -> None:
        super().__init__(f"the peer speaks protocol {theirs}, this is protocol {ours}: install the same digend on both")
        self.theirs = theirs
        self.ours = ours


class Malformed(ProtocolError):
    """Not a message, or a message with a field missing, unknown or of a wrong type."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed message: {reason}")
        self.reason = reason


class NotAllowed(ProtocolError):
    """No such message, or one that this peer may not send; its fields were not looked at."""

    def __init__(self, name: str, sender: str = "") -> None:
        super().__init__(f"a {name} message is not accepted " + (f"from {sender}" if sender else "here"))
        self.name = name


class NotListed(ProtocolError):
    """The sender's key was taken off the list; nothing was decoded."""

    def __init__(self) -> None:
        super().__init__("the key that this came with is not in the list any more (keys.toml)")


class TooLarge(ProtocolError):
    """More bytes than the limit; nothing was decoded."""

    def __init__(self, num_bytes: int, limit: int) -> None:
        super().__init__(f"a message of {num_bytes} bytes is over the limit of {limit}")
        self.num_bytes = num_bytes
        self.limit = limit
