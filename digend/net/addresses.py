"""Addresses: `ipc://PATH` and `tcp://HOST:PORT`, checked before a socket is made.

Off this machine traffic must be encrypted, so such an address is refused here, whoever asks, unless there are keys.
Invariant: an address that left `resolve` is absolute and can be bound or connected as it stands.
"""

import re
import socket
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

MAX_PATH_BYTES = 107
"""Linux: `sun_path` of a Unix socket has 108 bytes, one of them the final zero."""

TRANSPORTS = ("ipc", "tcp")
ANY_HOST = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Hosts that mean every interface, and where such a server is reached on its own machine."""

KEY_MARK = "#"
"""In the address of a blob server: what follows is its public key."""

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*")


class BadAddress(ValueError):
    """The address cannot be used; the message says how to mend it."""


class NeedsKeys(BadAddress):
    """The address is not on this machine, and there are no keys."""


def resolve(address: str, base: Path | None = None, *, wildcard: bool = False, keyed: bool = False) -> str:
    """The address as ZeroMQ takes it; a relative ipc path is taken from `base` (default: the working
    directory).

    `wildcard` is for binding: it allows every interface, and port `*` (or none) for a free one. `keyed`: there are
    keys. Raises BadAddress, NeedsKeys.
    """
    transport, found, rest = address.partition("://")
    if not found or transport not in TRANSPORTS:
        raise BadAddress(f"{address!r} is no address: {_transport_hint(transport if found else '')}")
    if transport == "ipc":
        return _resolve_ipc(rest, base)
    resolved = _resolve_tcp(address, rest, wildcard)
    if not keyed and not is_local(resolved):
        raise NeedsKeys(
            f"{address!r} is not on this machine, and without keys nothing goes there: make one with `digenctl keygen` "
            "and name it in [keys] of the node file (digenctl: --key), or use ipc://PATH or tcp://127.0.0.1:PORT"
        )
    return resolved


def is_local(address: str) -> bool:
    """Whether what goes to a resolved address stays on this machine."""
    if address.startswith("ipc://"):
        return True
    with suppress(ValueError):
        return ip_address(host_of(address).strip("[]")).is_loopback
    return False


def host_of(address: str) -> str:
    """The host of a resolved TCP address, an IPv6 one in its brackets."""
    return address.removeprefix("tcp://").rpartition(":")[0]


def socket_path(address: str) -> Path | None:
    """The socket file of a resolved address; None for tcp."""
    return Path(address.removeprefix("ipc://")) if address.startswith("ipc://") else None


def to_bind(endpoint: str) -> str:
    """A resolved address with a host that can be bound: a name is looked up. Raises BadAddress."""
    host = host_of(endpoint) if endpoint.startswith("tcp://") else "*"
    if host in ANY_HOST or _is_number(host) or host in {name for _, name in socket.if_nameindex()}:
        return endpoint
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise BadAddress(
            f"{host!r} is no interface of this machine, and no name with an IPv4 address: {error}"
        ) from None
    return f"tcp://{found[0][4][0]}:{endpoint.rpartition(':')[2]}"


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
    bracket = rest.find("]")
    host, _, port = rest.partition(":") if bracket < 0 else (rest[: bracket + 1], "", rest[bracket + 1 :].lstrip(":"))
    host = _host(address, host, wildcard)
    if port in ("", "*") and wildcard:
        return f"tcp://{host}:*"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadAddress(f"{address!r} needs a port from 1 to 65535, such as tcp://{host}:5757")
    return f"tcp://{host}:{int(port)}"


def _host(address: str, host: str, wildcard: bool) -> str:
    if host in ANY_HOST:
        return host if wildcard else ANY_HOST[host]
    if host == "localhost":
        return "127.0.0.1"
    looks_numeric = host.startswith("[") or not host.strip("0123456789.")
    if not (_is_number(host) if looks_numeric else _NAME.fullmatch(host)):
        raise BadAddress(f"{address!r} needs a host: a name, an IPv4 address, or an IPv6 address in brackets")
    return host


def _is_number(host: str) -> bool:
    try:
        return bool(IPv6Address(host[1:-1]) if host.startswith("[") and host.endswith("]") else IPv4Address(host))
    except ValueError:
        return False
