"""Logs on the screen: found on this box (files of `digend up`, or systemd's journal), chosen, told in order of time.

Must not know formats (`log_lines`) or rotation (`log_files`).
"""

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from itertools import chain
from pathlib import Path

from clients.api import Digend
from clients.jobs import NotFound, name_of
from clients.log_files import Follower, files_of, lines_of, rotated_lines, worker_name
from clients.log_lines import LEVELS, Entry, entries
from clients.output import Output
from clients.this_box import ThisBox, place_of, this_box
from digend.exitcodes import ExitCode
from digend.net.client import ClientError
from digend.wire.views import NodeView

POLL_S = 0.2
"""Between two looks at files that are followed."""

SYSTEMD = Path("/run/systemd/system")
PRIORITIES = {"debug": "debug", "info": "info", "warning": "warning", "error": "err"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`what`: a job or a process, everything if None. `limit`: newest entries, all if None."""

    what: str | None
    follow: bool
    since: datetime | None
    level: str
    limit: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Files to read, and the job that their entries must be about, if any."""

    files: tuple[Path, ...]
    job: str | None

    def has(self, entry: Entry, wanted: Wanted) -> bool:
        if self.job is not None and not entry.is_about(self.job):
            return False
        if wanted.since is not None and entry.time < wanted.since:
            return False
        return entry.level not in LEVELS or LEVELS.index(entry.level) >= LEVELS.index(wanted.level)


def show(driver: Digend, output: Output, wanted: Wanted) -> int:
    """Raises NotFound, AmbiguousId."""
    box = this_box(driver)
    if box is not None and box.logs.is_dir():
        return _from_files(driver, output, wanted, box)
    if SYSTEMD.is_dir() and shutil.which("journalctl"):
        return _from_journal(driver, output, wanted)
    place = place_of(driver)
    if place is not None:
        raise NotFound(f"no logs of digend on this box: the driver's are on {place.host}, in {place.state}/logs")
    raise NotFound("no logs of digend on this box: name its node file with --node (they are in state/logs)")


# ----------------------------------------------------------------------------------------------------------- files


def _from_files(driver: Digend, output: Output, wanted: Wanted, box: ThisBox) -> int:
    choice = _chosen(driver, wanted.what, box)
    followers = {path: Follower(path) for path in choice.files} if wanted.follow else {}
    lines = {path: chain(rotated_lines(path), follower.new_lines()) for path, follower in followers.items()}
    streams = [entries(worker_name(box.name, path), lines.get(path) or lines_of(path)) for path in choice.files]
    found = (entry for entry in merge(*streams, key=lambda entry: entry.time) if choice.has(entry, wanted))
    _print(output, deque(found, wanted.limit), alone=len(choice.files) == 1)
    if choice.job is not None or wanted.what is None:
        _say_where_else(driver, output, box)
    if wanted.follow:
        _follow(output, wanted, choice, followers, box)
    return ExitCode.OK


def _chosen(driver: Digend, what: str | None, box: ThisBox) -> Choice:
    files = files_of(box.logs)
    if what is None:
        return Choice(tuple(files), None)
    by_name = {worker_name(box.name, path): path for path in files}
    mine = [path for name, path in by_name.items() if name.startswith(what) or path.stem.startswith(what)]
    exact = [path for name, path in by_name.items() if what in (name, f"{name}/0", path.stem)]
    if exact or mine:
        return Choice(tuple(exact or mine), None)
    _refuse_elsewhere(driver, what, box)
    return Choice(tuple(files), _job(driver, what, list(by_name)))


def _refuse_elsewhere(driver: Digend, what: str, box: ThisBox) -> None:
    for node in _nodes(driver):
        if node.name.startswith(what) and node.node != box.name:
            raise NotFound(f"logs of {node.name} are on its own box, {node.host or node.node}: ask digenctl logs there")


def _job(driver: Digend, what: str, processes: Sequence[str]) -> str:
    """A job's whole id; what was said where no driver can be asked."""
    try:
        driver.require_socket()
        jobs = [job.id for job in driver.jobs()]
    except ClientError:
        return what
    if any(job.startswith(what) for job in jobs):
        return name_of("job", jobs, what)
    return name_of("job", [*jobs, *processes], what)


def _nodes(driver: Digend) -> tuple[NodeView, ...]:
    try:
        driver.require_socket()
        return driver.nodes()
    except ClientError:
        return ()


def _say_where_else(driver: Digend, output: Output, box: ThisBox) -> None:
    others = sorted({node.host or node.node for node in _nodes(driver) if node.node != box.name})
    if others:
        output.hint(f"these are logs of {box.name}; those of other boxes are there: {', '.join(others)}")


def _follow(output: Output, wanted: Wanted, choice: Choice, followers: dict[Path, Follower], box: ThisBox) -> None:
    """Until Ctrl-C. A process that is started meanwhile is followed too, where all are."""
    try:
        while True:
            if wanted.what is None or choice.job is not None:
                for path in files_of(box.logs):
                    followers.setdefault(path, Follower(path))
            fresh = [
                entry
                for path, follower in followers.items()
                for entry in entries(worker_name(box.name, path), follower.new_lines())
                if _is_new(choice, entry, wanted)
            ]
            _print(output, sorted(fresh, key=lambda entry: entry.time), alone=len(choice.files) == 1)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        output.hint("")


def _is_new(choice: Choice, entry: Entry, wanted: Wanted) -> bool:
    """Lines that belong to an entry which was shown before have no time of their own."""
    undated = entry.time == datetime.fromtimestamp(0, UTC)
    return (undated and choice.job is None) or choice.has(entry, wanted)


def _print(output: Output, found: Iterable[Entry], *, alone: bool) -> None:
    for entry in found:
        if output.as_json:
            fields = {**entry.fields, "level": entry.level, "lines": entry.lines}
            output.document(process=entry.process, time=entry.time.isoformat(), **_extra(fields))
            continue
        for line in entry.lines:
            output.line(line if alone else f"{entry.process:<20} | {line}")
    sys.stdout.flush()


def _extra(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in ("process", "time", "schema_version")}


# --------------------------------------------------------------------------------------------------------- systemd


def _from_journal(driver: Digend, output: Output, wanted: Wanted) -> int:
    """Does not return: journalctl takes this process's place, with its paging, its Ctrl-C and its exit code."""
    words = ["journalctl", *_match(driver, wanted.what), "--priority", PRIORITIES[wanted.level]]
    words += ["--output", "json" if output.as_json else "short-iso"]
    if wanted.since is not None:
        words += ["--since", wanted.since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")]
    if wanted.limit is not None:
        words += ["--lines", str(wanted.limit)]
    words += ["--follow"] if wanted.follow else ["--no-pager"]
    sys.stdout.flush()
    os.execvp(words[0], words)


def _match(driver: Digend, what: str | None) -> Iterator[str]:
    """journalctl's match: a native field (`digend.telemetry.journald`), or all units of digend."""
    if what is None:
        yield from ("--unit", "digend*")
        return
    node = next((node for node in _nodes(driver) if node.name.startswith(what)), None)
    yield (
        f"DIGEND_PROCESS={node.name if node else what}"
        if node or "/" in what
        else f"DIGEND_JOB={_job(driver, what, ())}"
    )
