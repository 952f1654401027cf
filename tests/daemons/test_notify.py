"""What a service manager hears, on a real socket."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from daemons.notify import MAX_STATUS, Notifier


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(name)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """All datagrams since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """(NOTIFY_SOCKET, what to bind)."""
    with TemporaryDirectory(prefix="dg") as folder:
        path = str(Path(folder, "notify"))
        yield (f"@{path}", f"\0{path}") if request.param == "abstract" else (path, path)


@pytest.fixture
def manager(place: tuple[str, str]) -> Iterator[Manager]:
    made = Manager(place[1])
    yield made
    made.close()


def test_ready_then_statuses_that_changed(place: tuple[str, str], manager: Manager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": place[0]})
    notifier.ready("no job")
    notifier.status("no job")
    notifier.status("one job")
    assert manager.heard() == ["READY=1", "STATUS=no job", "STATUS=one job"]


def test_a_complaint_stands_before_each_status(place: tuple[str, str], manager: Manager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": place[0]})
    notifier.status("idle")
    notifier.complaint = "node file\nrefused"
    notifier.status("idle")
    notifier.complaint = ""
    notifier.status("x" * 1000)
    assert manager.heard() == ["STATUS=idle", "STATUS=node file refused; idle", f"STATUS={'x' * MAX_STATUS}"]


def test_reloading_and_stopping(place: tuple[str, str], manager: Manager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": place[0]})
    notifier.ready("idle")
    notifier.reloading()
    notifier.reloaded()
    notifier.stopping("draining")
    _, _, reloading, ready, stopping, status = manager.heard()
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert (ready, stopping, status) == ("READY=1", "STOPPING=1", "STATUS=draining")


async def test_signs_of_life_while_the_loop_turns(place: tuple[str, str], manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": place[0], "WATCHDOG_USEC": "40000", "WATCHDOG_PID": str(os.getpid())}
    task = asyncio.create_task(Notifier(environ).keep_alive())
    await asyncio.sleep(0.1)
    task.cancel()
    heard = manager.heard()
    assert set(heard) == {"WATCHDOG=1"}
    assert 3 <= len(heard) <= 20


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}])
async def test_no_signs_of_life_where_nobody_asks_this_process(environ: dict[str, str]) -> None:
    await asyncio.wait_for(Notifier(environ).keep_alive(), 1)


def test_without_a_manager_and_with_one_that_is_gone_nothing_happens() -> None:
    for environ in ({}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"NOTIFY_SOCKET": "@nowhere"}):
        notifier = Notifier(environ)
        notifier.ready("idle")
        notifier.stopping("gone")


def test_a_manager_that_does_not_listen_is_not_waited_for(place: tuple[str, str], manager: Manager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": place[0]})
    for number in range(2000):
        notifier.status(str(number))
    assert len(manager.heard()) < 2000
