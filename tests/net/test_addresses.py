"""Addresses: what is refused says how to mend it."""

from pathlib import Path

import pytest

from digend.net.addresses import MAX_PATH_BYTES, BadAddress, NeedsKeys, is_local, resolve, socket_path, to_bind

BASE = Path("/var/lib/digend")


def test_relative_ipc_paths_are_taken_from_the_base() -> None:
    assert resolve("ipc://.digend/driver.sock", BASE) == "ipc:///var/lib/digend/.digend/driver.sock"
    assert resolve("ipc:///run/d.sock", BASE) == "ipc:///run/d.sock"
    assert resolve("ipc://d.sock") == f"ipc://{Path.cwd()}/d.sock"


def test_loopback_tcp() -> None:
    assert resolve("tcp://127.0.0.1:5757") == "tcp://127.0.0.1:5757"
    assert resolve("tcp://localhost:5757") == "tcp://127.0.0.1:5757"
    assert resolve("tcp://127.3.2.1:1") == "tcp://127.3.2.1:1"


def test_a_free_port_is_for_binding_only() -> None:
    assert resolve("tcp://127.0.0.1", wildcard=True) == "tcp://127.0.0.1:*"
    assert resolve("tcp://127.0.0.1:*", wildcard=True) == "tcp://127.0.0.1:*"
    with pytest.raises(BadAddress, match="port from 1 to 65535"):
        resolve("tcp://127.0.0.1:*")


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "192.168.1.4", "node7", "[fe80::1]", "eth0", "[::]", "a.b-c.example"])
def test_other_machines_are_refused_without_keys_with_a_way_out(host: str) -> None:
    with pytest.raises(NeedsKeys, match=r"digenctl keygen.*\[keys\]"):
        resolve(f"tcp://{host}:5757", wildcard=True)
    assert resolve(f"tcp://{host}:5757", wildcard=True, keyed=True) == f"tcp://{host}:5757"
    assert not is_local(f"tcp://{host}:5757")


@pytest.mark.parametrize(
    "host", ["", "256.1.1.1", "1.2.3", "-x", "a b", "[::1", "::1", "[1.2.3.4]", "a..b", "x/y", "ä"]
)
def test_what_is_no_host_is_refused_with_keys_too(host: str) -> None:
    with pytest.raises(BadAddress, match="needs a host: a name, an IPv4 address, or an IPv6 address in brackets"):
        resolve(f"tcp://{host}:5757", keyed=True)


def test_every_interface_is_reached_on_this_machine() -> None:
    assert resolve("tcp://*:5757") == resolve("tcp://0.0.0.0:5757") == "tcp://127.0.0.1:5757"
    assert resolve("tcp://[::]:5757") == "tcp://[::1]:5757"
    assert is_local("tcp://[::1]:5757")


def test_names_are_looked_up_to_be_bound() -> None:
    assert to_bind("tcp://127.0.0.1:*") == "tcp://127.0.0.1:*"
    assert to_bind("tcp://*:5757") == "tcp://*:5757"
    assert to_bind("tcp://lo:*") == "tcp://lo:*"
    assert to_bind("ipc:///run/d.sock") == "ipc:///run/d.sock"
    with pytest.raises(BadAddress, match=r"'no\.such\.invalid' is no interface of this machine, and no name"):
        to_bind("tcp://no.such.invalid:*")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "", "5757x", "²", "5757:1"])
def test_impossible_ports_are_refused(port: str) -> None:
    with pytest.raises(BadAddress, match="1 to 65535"):
        resolve(f"tcp://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("address", "hint"),
    [("ipd:///x", "did you mean 'ipc'"), ("/tmp/x.sock", "ipc://PATH"), ("tcp:127.0.0.1", "tcp://127"), ("", "ipc://")],
)
def test_what_is_no_address_is_told_what_one_looks_like(address: str, hint: str) -> None:
    with pytest.raises(BadAddress, match=hint):
        resolve(address)


@pytest.mark.parametrize("path", ["", "@abstract", "*", "a\0b"])
def test_ipc_needs_a_file(path: str) -> None:
    with pytest.raises(BadAddress, match="socket file"):
        resolve(f"ipc://{path}", BASE)


def test_a_long_ipc_path_names_its_length_and_what_to_shorten() -> None:
    fits = "/tmp/" + "x" * (MAX_PATH_BYTES - 5)
    assert resolve(f"ipc://{fits}") == f"ipc://{fits}"
    with pytest.raises(BadAddress, match=r"has 110 bytes, the kernel takes 107.*shorten the folder /tmp by 3 bytes"):
        resolve(f"ipc://{fits}xyz")


def test_the_length_is_counted_in_bytes() -> None:
    with pytest.raises(BadAddress, match="bytes"):
        resolve("ipc:///tmp/" + "ü" * 60)


def test_socket_path() -> None:
    assert socket_path("ipc:///run/d.sock") == Path("/run/d.sock")
    assert socket_path("tcp://127.0.0.1:1") is None
