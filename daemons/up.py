"""`digend up NODE.toml`: every process of a node file, started, watched, and stopped in order.

Owns the order and the exit code. Must not know what a job is. Invariant: no process outlives `up`: each holds the
reading end of a pipe (`daemons.lifeline`) that only `up` can write to, so even `kill -9` of `up` is noticed.

Stopping: workers drain first, because they report to the driver; then the recorder, which hears from it; the driver
last. A second signal kills at once. SIGHUP goes on to all of them.
"""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from errno import EACCES
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path

from daemons import keyring
from daemons.backoff import Backoff
from daemons.children import WORKER_ROLES, Child, Program, programs
from daemons.ready import wait_until_ready
from digend.config.errors import ConfigError, Problem
from digend.config.layers import Places
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.net.security import Security
from digend.telemetry.logs import logger, set_up

log = logger()

STOP_ORDER: tuple[tuple[tuple[str, ...], float], ...] = (
    (WORKER_ROLES, 45.0),
    (("recorder",), 20.0),
    (("driver",), 15.0),
)
"""Who is asked to stop after whom, and how many seconds they have."""

AllThere = Callable[[NodeConfig, list[str], Security | None], Awaitable[None]]

MAX_LOG_BYTES = 16 * 1024 * 1024


class Supervisor:
    """The children of one node file."""

    def __init__(self, children: dict[Program, Child]) -> None:
        self._children = children
        self._asked = asyncio.Event()
        self._signalled = self._killed = False
        self._in_terminal = sys.stdin.isatty()
        self._runs: dict[Program, asyncio.Task[int]] = {}
        self._failed: int = ExitCode.OK
        self.ready = False
        """Whether all were there once. Until then one that is refused is an end for all: they would never be ready."""

    def ask_to_stop(self) -> None:
        """The first time: stop in order, which may have begun for another reason. The second time: at once."""
        if self._signalled:
            self._killed = True
            for child in self._children.values():
                child.kill()
        self._signalled = True
        self._asked.set()

    def reload(self) -> None:
        """All read their settings again. Where `up` was started in a terminal that is gone now, they stop instead."""
        if self._in_terminal and not sys.stdin.isatty():
            self.ask_to_stop()
            return
        log.info("all read their settings again")
        for child in self._children.values():
            child.reload()

    async def run(self) -> int:
        """Until asked to stop (0), or nothing is left to watch, or one refused its configuration before all were there,
        or the driver did so at any time (78)."""
        async with asyncio.TaskGroup() as group:
            for program, child in self._children.items():
                self._runs[program] = group.create_task(self._watch(program, child), name=program.name)
            ending = group.create_task(self._end(), name="stop")
            await asyncio.wait(self._runs.values())
            self._asked.set()
            await ending
        return self._failed

    async def _watch(self, program: Program, child: Child) -> int:
        code = await child.run()
        if code == ExitCode.BAD_CONFIG:
            alone = all(run.done() for other, run in self._runs.items() if other != program)
            if program.role == "driver" or alone or not self.ready:
                self._failed = ExitCode.BAD_CONFIG
                self._asked.set()
            what = "all stop" if self._failed else "it stays down"
            log.error(f"its configuration was refused, {what} (digend doctor tells more)", program=program.name)
        return code

    async def _end(self) -> None:
        await self._asked.wait()
        for roles, seconds in STOP_ORDER:
            chosen = {self._runs[program]: child for program, child in self._children.items() if program.role in roles}
            for child in chosen.values():
                child.kill() if self._killed else child.stop()
            if not chosen:
                continue
            _, late = await asyncio.wait(chosen, timeout=seconds)
            for run in late:
                log.warning("did not stop in time, killed", program=chosen[run].name, after_s=seconds)
                chosen[run].kill()
            if late:
                await asyncio.wait(late)


class LogFiles:
    """state/logs/NAME.log of every child, and the same lines on this process's stderr."""

    def __init__(self, folder: Path, prefixed: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._prefixed = prefixed

    def writer(self, name: str) -> Callable[[str], None]:
        """Takes the lines of one child."""
        handler = RotatingFileHandler(self._folder / f"{name}.log", maxBytes=MAX_LOG_BYTES, backupCount=2)
        handler.terminator = "\n"
        prefix = f"{name:<12} | " if self._prefixed else ""

        def write(line: str) -> None:
            record: LogRecord = makeLogRecord({"msg": line})
            handler.emit(record)
            with suppress(OSError):  # nobody reads any more; the file has it
                print(prefix + line, file=sys.stderr, flush=True)

        return write


def run(node: NodeConfig, places: Places, *, ready_file: str | None, pid_file: str | None) -> int:
    """`digend up` from start to end; `node` has its paths absolute."""
    set_up(node.log_format, node.log_level, f"{node.name}/up")
    try:
        return asyncio.run(supervise(node, places, ready_file=ready_file, pid_file=pid_file))
    except ConfigError as error:
        log.error("cannot start", reason=str(error))
        return ExitCode.BAD_CONFIG


async def supervise(
    node: NodeConfig,
    places: Places,
    *,
    ready_file: str | None = None,
    pid_file: str | None = None,
    command: Callable[[Program, Places, int], list[str]] = Program.command,
    backoff: Callable[[], Backoff] = Backoff,
    all_there: AllThere = wait_until_ready,
) -> int:
    """Runs all programs of a node file. `node` has its paths absolute. Raises ConfigError where another `up` runs.

    `command(program, places, lifeline)` is how a program is started, `all_there` returns once all are at work.
    """
    chosen = programs(node)
    if not chosen:
        raise _refused(places, "names no process: add [driver], [generator], [trainer], [reward] or recorder = true")
    security = keyring.load(node)
    try:
        logs = LogFiles(Path(node.state) / "logs", prefixed=node.log_format == "console")
    except OSError as error:
        raise _refused(places, f"state: {node.state} cannot be made: {error.strerror}") from None
    with ExitStack() as stack:
        stack.enter_context(_only_one(Path(node.state) / "up.lock", places))
        if ready_file:
            stack.callback(_claimed("--ready-file", Path(ready_file), places).unlink, missing_ok=True)
        if pid_file:
            stack.callback(_claimed("--pid-file", Path(pid_file), places, f"{os.getpid()}\n").unlink, missing_ok=True)
        lifeline, held = os.pipe()
        stack.callback(os.close, held)
        stack.callback(os.close, lifeline)
        children = {
            program: Child(
                program.name,
                command(program, places, lifeline),
                lifeline=lifeline,
                write_line=logs.writer(program.name),
                backoff=backoff(),
            )
            for program in chosen
        }
        supervisor = Supervisor(children)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.ask_to_stop)
        loop.add_signal_handler(signal.SIGHUP, supervisor.reload)

        async def tell_ready() -> None:
            workers = [program.worker_name(node.name) for program in chosen if program.role != "driver"]
            await all_there(node, workers, security)
            supervisor.ready = True
            _say_ready(node, places, ready_file)

        telling = asyncio.create_task(tell_ready(), name="ready")
        try:
            return await supervisor.run()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


def _say_ready(node: NodeConfig, places: Places, ready_file: str | None) -> None:
    print("ready", flush=True)
    if ready_file:
        try:
            Path(ready_file).write_text("ready\n", encoding="utf-8")
        except OSError as error:
            log.error("the ready file cannot be written", path=ready_file, reason=error.strerror)
    if node.driver and node.log_format == "console":
        where = f" --node {places.node_file}" if places.node_file else ""
        print(f"the next step: digenctl submit JOB.toml --watch{where}", file=sys.stderr, flush=True)


def _claimed(option: str, path: Path, places: Places, text: str = "") -> Path:
    """A file of this process with `text`, or none yet; what another one left there is gone."""
    try:
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")
        elif not os.access(path.parent, os.W_OK):
            raise PermissionError(EACCES, "its folder is not there or may not be written")
    except OSError as error:
        raise _refused(places, f"{option} {path} cannot be written: {error.strerror}") from None
    return path


def _only_one(path: Path, places: Places) -> ExitStack:
    """Holds a lock on the state folder for the life of this process."""
    stack = ExitStack()
    file = stack.enter_context(path.open("a+", encoding="utf-8"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stack.close()
        raise _refused(places, f"another `digend up` holds {path}") from None
    return stack


def _refused(places: Places, message: str) -> ConfigError:
    return ConfigError([Problem(where=places.words, key="", message=message)])
