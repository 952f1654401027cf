"""All run folders of a cluster: which record each job wants next, and writing what comes.

Owns `runs/`. Knows no session and no socket. Invariant: only one recorder writes (a lock on the folder); a
record that is on disk already is ignored, and one that would leave a hole is refused with `Hole`.
"""

import fcntl
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from errno import ENOSPC, EROFS
from pathlib import Path
from typing import IO

from daemons.recorder.eventlog import next_wanted
from daemons.recorder.pictures import Puller
from daemons.recorder.run import EVENTS, SUMMARY, Run, begin
from daemons.trackers.trackers import Trackers
from digend.telemetry.stages import FINAL_STATES
from digend.wire.records import JobState, Record

TRACKERS_S = 8.0
"""How long the end of the recorder waits for trackers of somebody else's."""

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Hole(Exception):
    """Records before these are missing: they must be asked for again."""


class Locked(Exception):
    """Another recorder writes to the same folder."""


class Unwritable(Exception):
    """The folder cannot be made or written, and starting again would not help (a full disk is no such case)."""


class Archive:
    """Opened on start; `close` gives the folder to the next recorder. Raises Locked, Unwritable."""

    def __init__(self, folder: Path, puller: Puller) -> None:
        self._folder = folder
        self._puller = puller
        self._runs: dict[str, Run] = {}
        self._ending: deque[Trackers] = deque(maxlen=8)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
        except OSError as error:
            if error.errno in (ENOSPC, EROFS):  # not for ever: it is started again until there is
                raise
            raise Unwritable(f"runs: {folder} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        for trackers in (*self._ending, *(run.trackers for run in self._runs.values())):
            trackers.close(TRACKERS_S / (len(self._ending) + len(self._runs)))
        self._runs.clear()
        self._lock.close()

    @property
    def trackers_up(self) -> dict[str, bool]:
        """By name, of the runs that are being written."""
        up: dict[str, bool] = {}
        for run in list(self._runs.values()):
            for name, works in run.trackers.up.items():
                up[name] = up.get(name, True) and works
        return up

    @property
    def troubles(self) -> tuple[str, ...]:
        """What trackers of the runs that are being written failed with."""
        return tuple(
            f"{name} of {job}: {why}"
            for job, run in list(self._runs.items())
            for name, why in run.trackers.troubles.items()
        )

    def wanted(self) -> dict[str, int]:
        """The next record of each job, by what is on disk."""
        logs = {path.parent.name: path for path in sorted(self._folder.glob(f"*/{EVENTS}"))}
        opened = {job: run.next_seq for job, run in self._runs.items() if job in logs}
        return {job: opened[job] if job in opened else next_wanted(path) for job, path in logs.items()}

    def catch_up(self) -> list[str]:
        """Finish what a kill interrupted: runs whose summary is older than their events. Raises OSError."""
        late = [job for job, seq in self.wanted().items() if seq and _num_told(self._folder / job) != seq]
        for job in late:
            self._open(job)
            self._ending.append(self._runs.pop(job).trackers)
        return late

    def write(self, records: Sequence[Record], configs: Mapping[str, str]) -> dict[str, int]:
        """Write records, jobs apart; returns `next_seq` of each job named. Raises Hole or OSError.

        After OSError the same call may be made again: what was written of it is ignored then.
        """
        written: dict[str, int] = {}
        by_job: dict[str, list[Record]] = {}
        for record in records:
            by_job.setdefault(record.job, []).append(record)
        for job, stream in by_job.items():
            try:
                written[job] = self._write_job(job, stream, configs.get(job))
            except OSError:
                self._runs.pop(job, None)
                raise
        return written

    def _write_job(self, job: str, stream: Sequence[Record], config: str | None) -> int:
        if job not in self._runs:
            begin(self._path(job), config if stream[0].seq == 0 else None)
        run = self._open(job)
        fresh = [record for record in stream if record.seq >= run.next_seq]
        expected = range(run.next_seq, run.next_seq + len(fresh))
        if [record.seq for record in fresh] != list(expected):
            raise Hole(f"job {job}: wants record {run.next_seq}, got {fresh[0].seq} and {len(fresh) - 1} more")
        if fresh:
            run.append(fresh)
        next_seq = run.next_seq
        if any(isinstance(record.body, JobState) and record.body.state in FINAL_STATES for record in fresh):
            self._ending.append(self._runs.pop(job).trackers)
        return next_seq

    def _open(self, job: str) -> Run:
        """The run; one that is opened again after a kill or a full disk first tells what it had not told."""
        if job not in self._runs:
            run = Run(self._path(job), self._puller)
            if run.next_seq and _num_told(self._path(job)) != run.next_seq:
                run.tell(with_report=True)
            self._runs[job] = run
        return self._runs[job]

    def _path(self, job: str) -> Path:
        if not _JOB_ID.fullmatch(job):
            raise ValueError(f"{job!r} cannot be a run folder's name")
        return self._folder / job


def _lock(folder: Path) -> IO[bytes]:
    file = (folder / ".recorder.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Locked(f"another recorder writes to {folder}") from error
    return file


def _num_told(folder: Path) -> int | None:
    try:
        document = json.loads((folder / SUMMARY).read_bytes())
        return int(document["num_records"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
