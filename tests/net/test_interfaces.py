"""Which interface of this box an address, a name or an interface's own name means."""

import socket

import pytest

from digend.net.addresses import BadAddress
from digend.net.interfaces import find


@pytest.mark.parametrize("wanted", ["", "lo", "127.0.0.1", "localhost", "127.0.0.3"])
def test_loopback(wanted: str) -> None:
    found = find(wanted)
    assert found.name == "lo"
    assert found.is_loopback


def test_every_interface_is_found_by_its_address() -> None:
    for _, name in socket.if_nameindex():
        try:
            found = find(name)
        except BadAddress:
            continue  # it has no IPv4 address
        assert find(found.address).address == found.address


@pytest.mark.parametrize("wanted", ["192.0.2.7", "no-such-interface.invalid"])
def test_what_is_not_here_is_refused(wanted: str) -> None:
    with pytest.raises(BadAddress, match=wanted):
        find(wanted)
