"""Addresses: what is refused says how to mend it."""

from pathlib import Path

import pytest

from digend.net.addresses import MAX_PATH_BYTES, BadAddress, resolve, socket_path

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


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "192.168.1.4", "node7", "8.8.8.8", "", "eth0", "256.1.1.1"])
def test_other_interfaces_are_refused_with_a_way_out(host: str) -> None:
    with pytest.raises(BadAddress, match=r"loopback.*ssh -L"):
        resolve(f"tcp://{host}:5757", wildcard=True)


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
