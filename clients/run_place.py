"""Where a job's run folder is: on which box, at which path, and whether that is this one; and a job's records, from it
or from the driver."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clients.api import Digend
from digend.net.client import DriverUnreachable
from digend.wire.records import Record


@dataclass(frozen=True, slots=True)
class RunPlace:
    """`host` is what the recorder's box calls itself. `path` is absolute there."""

    job: str
    host: str
    path: Path

    @property
    def here(self) -> bool:
        return self.host in ("", socket.gethostname())

    @property
    def source(self) -> str:
        """By what `records_of` finds it: a folder that was named, else the job's id."""
        return self.job if self.host else str(self.path)

    def shown(self, path: Path) -> str:
        """A path in it as a person can use it: `host:path`, as scp has it, where it is on another box."""
        return str(path) if self.here else f"{self.host}:{path}"


def is_folder(job: str | None) -> bool:
    """Whether a run folder is named, and not a job's id: those have no slash."""
    return job is not None and (os.sep in job or Path(job).is_dir())


def run_place(driver: Digend, job: str | None) -> RunPlace:
    """Of a job by its id, the beginning of one, or a run folder; of the newest that has begun where it is None. Raises
    NotFound."""
    if job is not None and is_folder(job):
        folder = Path(job).absolute()
        return RunPlace(folder.name, "", folder)
    _require(driver)
    whole = driver.job_id(job, begun=True)
    recorder = next((node for node in driver.nodes() if node.role == "recorder" and node.runs), None)
    if recorder is not None:
        return RunPlace(whole, recorder.host, Path(recorder.runs) / whole)
    place = driver.place()
    return RunPlace(whole, place.host, Path(place.runs) / whole)


def _require(driver: Digend) -> None:
    """Raises DriverUnreachable that says what needs no driver: a run outlives its cluster."""
    try:
        driver.require_socket()
    except DriverUnreachable as error:
        raise DriverUnreachable(
            f"{error}; the folder of a run, such as runs/ID, in place of a job needs none"
        ) from None


def records_of(driver: Digend, job: str | None) -> Iterator[Record]:
    """All there are so far, of a job or of a run folder; of the newest job that has begun where it is None. Raises
    NotFound."""
    if job is not None and is_folder(job):
        from clients.run_events import read_records

        yield from read_records(Path(job))
        return
    _require(driver)
    yield from driver.all_records(driver.job_id(job, begun=True))
