"""Addresses: `ipc://PATH` and `tcp://127.0.0.1:PORT`, checked before a socket is made.

Nothing encrypts or authenticates traffic yet, so any other address is refused here, whoever asks. Invariant:
an address that left `resolve` is absolute and can be bound or connected as it stands.
"""

from difflib import get_close_matches
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

MAX_PATH_BYTES = 107
"""Linux: `sun_path` of a Unix socket has 108 bytes, one of them the final zero."""

TRANSPORTS = ("ipc", "tcp")


class BadAddress(ValueError):
    """The address cannot be used; the message says how to mend it."""


def resolve(address: str, base: Path | None = None, *, wildcard: bool = False) -> str:
    """The address as ZeroMQ takes it; a relative ipc path is taken from `base` (default: the working
    directory).

    `wildcard` allows port `*` (or none), for binding to a free port. Raises BadAddress.
    """
    transport, found, rest = address.partition("://")
    if not found or transport not in TRANSPORTS:
        raise BadAddress(f"{address!r} is no address: {_transport_hint(transport if found else '')}")
    return _resolve_ipc(rest, base) if transport == "ipc" else _resolve_tcp(address, rest, wildcard)


def socket_path(address: str) -> Path | None:
    """The socket file of a resolved address; None for tcp."""
    return Path(address.removeprefix("ipc://")) if address.startswith("ipc://") else None


def nearest(word: str, known: tuple[str, ...]) -> str:
    """ ", did you mean X?" or nothing."""
    close = get_close_matches(word, known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _transport_hint(transport: str) -> str:
    return f"write ipc://PATH or tcp://127.0.0.1:PORT{nearest(transport, TRANSPORTS)}"


def _resolve_ipc(rest: str, base: Path | None) -> str:
    if not rest or rest.startswith(("@", "*")) or "\0" in rest:
        raise BadAddress(f"'ipc://{rest}' needs the path of a socket file")
    path = ((base or Path.cwd()) / rest).absolute()
    excess = len(str(path).encode()) - MAX_PATH_BYTES
    if excess > 0:
        raise BadAddress(
            f"the ipc path has {MAX_PATH_BYTES + excess} bytes, the kernel takes {MAX_PATH_BYTES}: {path}; "
            f"shorten the folder {path.parent} by {excess} bytes, or use a path under /run or /tmp"
        )
    return f"ipc://{path}"


def _resolve_tcp(address: str, rest: str, wildcard: bool) -> str:
    host, _, port = rest.partition(":")
    if host == "localhost":
        host = "127.0.0.1"
    if not _is_loopback(host):
        raise BadAddress(
            f"{address!r} is not on the loopback interface, and traffic is neither encrypted nor signed yet: "
            "use ipc://PATH or tcp://127.0.0.1:PORT, and reach another machine through a tunnel (ssh -L)"
        )
    if port in ("", "*") and wildcard:
        return f"tcp://{host}:*"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadAddress(f"{address!r} needs a port from 1 to 65535, such as tcp://{host}:5757")
    return f"tcp://{host}:{int(port)}"


def _is_loopback(host: str) -> bool:
    try:
        return IPv4Address(host).is_loopback
    except AddressValueError:
        return False
