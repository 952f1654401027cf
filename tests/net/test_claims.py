"""One server an address: the second is refused, the first keeps working, the dead do not count."""

import subprocess
import sys
from pathlib import Path

import pytest

from digend.net.claims import AddressInUse
from digend.net.link import Link
from digend.net.server import ControlServer
from digend.wire.workers import Heartbeat

BIND = """
import asyncio, sys
from digend.net.server import ControlServer
async def main():
    try:
        await ControlServer.bind(sys.argv[1])
    except OSError as error:
        print(f"refused: {error}", flush=True)
    else:
        print("bound", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def _bind_elsewhere(address: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", BIND, address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


async def test_a_second_process_is_refused_and_the_first_keeps_working(server: ControlServer) -> None:
    link = Link.connect(server.address)
    process, said = _bind_elsewhere(server.address)
    _end(process)
    assert said.startswith("refused: ")
    assert "is served by process" in said
    await link.connected()
    assert link.send(Heartbeat(session="s", seq=1))
    assert (await anext(server.messages()))[1] == Heartbeat(session="s", seq=1)
    link.close(0)


async def test_a_second_server_of_the_same_process_is_refused(server: ControlServer) -> None:
    with pytest.raises(AddressInUse, match="stop it, or use another address"):
        await ControlServer.bind(server.address)


async def test_the_address_of_a_killed_process_is_free(folder: Path) -> None:
    address = f"ipc://{folder}/d.sock"
    process, said = _bind_elsewhere(address)
    assert said == "bound"
    with pytest.raises(AddressInUse, match=str(process.pid)):
        await ControlServer.bind(address)
    _end(process)
    assert (folder / "d.sock").exists()  # it had no time to tidy up
    server = await ControlServer.bind(address)
    server.close(0)


async def test_an_address_can_be_bound_again_after_close(folder: Path) -> None:
    for seq in range(30):
        server = await ControlServer.bind(f"ipc://{folder}/d.sock")
        link = Link.connect(server.address)
        await link.connected()
        assert link.send(Heartbeat(session="s", seq=seq))
        assert (await anext(server.messages()))[1] == Heartbeat(session="s", seq=seq)
        link.close(0)
        server.close(0)


async def test_a_port_can_be_bound_again_after_close() -> None:
    server = await ControlServer.bind("tcp://127.0.0.1")
    for _ in range(30):
        server.close(0)
        server = await ControlServer.bind(server.address)
    server.close(0)


async def test_a_file_that_is_no_socket_is_left_alone(folder: Path) -> None:
    precious = folder / "d.sock"
    precious.write_text("thesis")
    for _ in range(2):
        with pytest.raises(AddressInUse, match="not a socket"):
            await ControlServer.bind(f"ipc://{precious}")
    assert precious.read_text() == "thesis"


async def test_a_port_in_use_is_named() -> None:
    first = await ControlServer.bind("tcp://127.0.0.1")
    with pytest.raises(AddressInUse, match=first.address):
        await ControlServer.bind(first.address)
    first.close(0)


async def test_a_folder_that_cannot_be_made_is_an_os_error(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        await ControlServer.bind(f"ipc://{folder}/file/d.sock")
