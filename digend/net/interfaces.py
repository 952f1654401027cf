"""Interfaces of this box: which one an address, a name or an interface's own name means. IPv4, as torch.distributed's
settings by interface are about one address family at a time.

Owns the question to the kernel. Opens no socket that stays.
"""

import fcntl
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address

from digend.net.addresses import BadAddress, nearest

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Interface:
    """`name` as the kernel has it, and the address it is reached at."""

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        return ip_address(self.address).is_loopback


def find(wanted: str) -> Interface:
    """`wanted`: an address or interface of this box, or a name of it; loopback where empty. Raises BadAddress."""
    here = {name: address for _, name in socket.if_nameindex() if (address := _address_of(name))}
    if wanted in here:
        return Interface(wanted, here[wanted])
    if not wanted:  # a box whose loopback is down has no ranks, and all else works
        return Interface(_loopback_of(here) or "lo", LOOPBACK)
    address = _looked_up(wanted, tuple(here))
    name = next((name for name, each in here.items() if each == address), None)
    if name is None and ip_address(address).is_loopback:
        name = _loopback_of(here)
    if name is None:
        known = ", ".join(f"{name} ({each})" for name, each in here.items())
        raise BadAddress(f"no interface of this box has the address {address} of {wanted!r}: there is {known}")
    return Interface(name, address)


def _loopback_of(here: dict[str, str]) -> str | None:
    return next((name for name, each in here.items() if ip_address(each).is_loopback), None)


def _looked_up(host: str, known: tuple[str, ...]) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise BadAddress(
            f"{host!r} is no interface of this box, and no name with an IPv4 address: {error}{nearest(host, known)}"
        ) from None


def _address_of(name: str) -> str:
    """ "" where the interface has no IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])
