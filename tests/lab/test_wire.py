"""The wire between two network namespaces: whole, slow, cut, cut in one direction, healed."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.lab.network import ADDRESSES, PYTHON, Network, connected

LISTEN = """
import socket, sys
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind((sys.argv[1], 7))
print("ready", flush=True)
while True:
    data, peer = line.recvfrom(2000)
    print(data.decode(), flush=True)
    line.sendto(data, peer)
"""
ASK = """
import socket, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(0.4)
begun = time.monotonic()
line.sendto(sys.argv[2].encode(), (sys.argv[1], 7))
try:
    line.recv(2000)
except TimeoutError:
    sys.exit("no answer")
print(time.monotonic() - begun)
"""


@pytest.fixture(scope="module")
def network(lab: None) -> Iterator[Network]:
    with connected() as made:
        yield made


@pytest.fixture(scope="module")
def listener(network: Network) -> Iterator["subprocess.Popen[str]"]:
    """In the second namespace; prints what it hears and answers."""
    command = ["ip", "netns", "exec", network.namespaces[1], PYTHON, "-c", LISTEN, ADDRESSES[1]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def ask(network: Network, text: str) -> float | None:
    """Seconds until the answer; None where there is none."""
    command = ["ip", "netns", "exec", network.namespaces[0], PYTHON, "-c", ASK, ADDRESSES[1], text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        assert "no answer" in done.stderr
        return None
    return float(done.stdout)


def test_a_wire_is_whole_slow_cut_and_healed(network: Network, listener: "subprocess.Popen[str]") -> None:
    assert listener.stdout is not None
    assert ask(network, "whole") is not None
    network.change(delay_ms=60)
    slow = ask(network, "slow")
    assert slow is not None
    assert slow >= 0.12, "both ways"
    network.change(delay_ms=0, cut=True)
    assert ask(network, "cut") is None
    network.change(cut=False, cut_ba=True)
    assert ask(network, "one way") is None
    network.change(cut_ba=False, loss=1.0)
    assert ask(network, "lost") is None
    network.change(loss=0.0)
    assert ask(network, "healed") is not None
    heard = [listener.stdout.readline().strip() for _ in range(4)]
    assert heard == ["whole", "slow", "one way", "healed"]
