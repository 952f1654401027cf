"""Settings that are read again."""

import asyncio
import io
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from daemons.notify import Notifier
from daemons.reload import Settings, remember_early
from digend.config.loader import load_node
from digend.config.node import NodeConfig
from digend.telemetry import logs


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """The lines of the test's process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.set_up("json", "info", "box/driver", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@dataclass
class World:
    """A node file and a process of `role` that can change its timing."""

    path: Path
    role: str = "driver"
    lost_s: list[float] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    notifier: Notifier = field(default_factory=lambda: Notifier({}))

    def begin(self, text: str = "[driver]\n") -> Settings:
        self.write(text)
        live = {"timing.lost_s": self.change, "timing.torpid_s": self.change}
        return Settings(lambda: load_node(self.path), self.role, load_node(self.path), self.notifier, live)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def change(self, config: NodeConfig) -> None:
        self.lost_s.append(config.timing.lost_s)
        self.changed.set()


def said(log: io.StringIO) -> str:
    """What was logged since the last call."""
    text = log.getvalue()
    log.seek(0)
    log.truncate()
    return text


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "node.toml")


def test_what_can_change_changes_once(world: World, log: io.StringIO) -> None:
    settings = world.begin()
    world.write('log_level = "debug"\n[driver]\n[timing]\ntorpid_s = 20.0\nlost_s = 60.0\n')
    settings.reload()
    assert world.lost_s == [60.0]
    assert logging.getLogger().level == logging.DEBUG
    assert '"changed": ["log_level", "timing.lost_s", "timing.torpid_s"]' in said(log)
    settings.reload()
    assert world.lost_s == [60.0]


def test_what_waits_for_a_restart_is_named_until_it_is_as_before(world: World, log: io.StringIO) -> None:
    settings = world.begin()
    world.write('runs = "elsewhere"\n[driver]\njournal = "j"\n')
    for _ in range(2):
        settings.reload()
        assert '"waiting_for_restart": ["driver.journal", "runs"]' in said(log)
    world.write("[driver]\n")
    settings.reload()
    assert '"waiting_for_restart": []' in said(log)


def test_other_roles_are_not_this_process_s_business(world: World, log: io.StringIO) -> None:
    settings = world.begin()
    world.write("[driver]\n[generator]\nslots = 3\n[trainer]\n")
    settings.reload()
    assert '"waiting_for_restart": []' in said(log)


@pytest.mark.parametrize("text", ["[driver\n", "[drivr]\n", 'log_level = "loud"\n', "[timing]\nlost_s = 1.0\n"])
def test_a_file_that_is_refused_changes_nothing(world: World, text: str, log: io.StringIO) -> None:
    settings = world.begin()
    world.write(text)
    settings.reload()
    assert world.lost_s == []
    assert logging.getLogger().level == logging.INFO
    assert "the settings are refused" in said(log)
    assert world.notifier.complaint.startswith("settings refused at ")
    assert str(world.path) in world.notifier.complaint
    world.write("[driver]\n")
    settings.reload()
    assert world.notifier.complaint == ""


async def test_a_sighup_while_the_daemon_loads_is_not_forgotten(world: World) -> None:
    remember_early()
    settings = world.begin()
    world.write("[driver]\n[timing]\nlost_s = 61.0\n")
    os.kill(os.getpid(), signal.SIGHUP)
    assert world.lost_s == []
    settings.listen()
    assert world.lost_s == [61.0]
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_sighup_reads_it(world: World) -> None:
    settings = world.begin()
    settings.listen()
    world.write("[driver]\n[timing]\nlost_s = 60.0\n")
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(world.changed.wait(), 5)
    assert world.lost_s == [60.0]
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
