"""What is between network namespaces: whole, slow, cut, cut in one direction, healed, of limited rate; and a hub."""

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
TAKE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 7)) as server:
    print("ready", flush=True)
    for _ in range(int(sys.argv[2])):
        with server.accept()[0] as line:
            while line.recv(65536):
                pass
"""
GIVE = """
import socket, sys, time
begun = time.monotonic()
with socket.create_connection((sys.argv[1], 7)) as line:
    line.sendall(bytes(int(sys.argv[2])))
    line.shutdown(socket.SHUT_WR)
    line.recv(1)
print(time.monotonic() - begun)
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


pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture(scope="module")
def network(namespaces: None) -> Iterator[Network]:
    with connected() as made:
        yield made


@pytest.fixture(scope="module")
def listener(network: Network) -> Iterator["subprocess.Popen[str]"]:
    """In the second namespace; prints what it hears and answers."""
    command = [*network.inside(1), PYTHON, "-c", LISTEN, ADDRESSES[1]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def ask(network: Network, text: str) -> float | None:
    """Seconds until the answer; None where there is none."""
    command = [*network.inside(0), PYTHON, "-c", ASK, ADDRESSES[1], text]
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
    network.change(cut=False)
    network.change(1, cut_out=True)
    assert ask(network, "one way") is None
    network.change(cut_out=False, loss=1.0)
    assert ask(network, "lost") is None
    network.change(loss=0.0)
    assert ask(network, "healed") is not None
    heard = [listener.stdout.readline().strip() for _ in range(4)]
    assert heard == ["whole", "slow", "one way", "healed"]


def test_a_hub_whose_links_have_a_rate() -> None:
    """One host of three takes from the other two at once: its own link is what limits them."""
    with connected(3) as network:
        network.change(rate_mbit=40.0)
        num_bytes, words = 1_000_000, [PYTHON, "-c"]
        taking = subprocess.Popen(
            [*network.inside(0), *words, TAKE, ADDRESSES[0], "3"], stdout=subprocess.PIPE, text=True
        )
        assert taking.stdout is not None
        assert taking.stdout.readline() == "ready\n"

        def giving(host: int) -> "subprocess.Popen[str]":
            command = [*network.inside(host), *words, GIVE, ADDRESSES[0], str(num_bytes)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        alone = float(giving(1).communicate(timeout=30)[0])
        assert alone >= num_bytes / 5e6, "5 MB/s"
        both = [giving(host) for host in (1, 2)]
        together = max(float(each.communicate(timeout=30)[0]) for each in both)
        assert together >= 1.8 * num_bytes / 5e6, "the receiver's link has to carry both"
        taking.communicate(timeout=30)
