"""What the journal holds beside its batches: jobs, their records, and jobs that ended in earlier segments.

Owns the reading side (writing is part of a turn, `journal.py`). Must not know who asks.
"""

import sqlite3
from dataclasses import dataclass

from daemons.driver import packing
from daemons.driver.journal import JobRow, Journal
from digend.wire.records import Record
from digend.wire.views import JobDetail


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with the bytes it takes on the wire, about."""

    record: Record
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A recorded step as it lies in the journal, pressed."""

    id: int
    now_ns: int
    events: bytes
    commands: bytes


class Archive:
    """Reads over the journal's connection."""

    def __init__(self, journal: Journal) -> None:
        self._connection: sqlite3.Connection = journal.connection

    def jobs(self) -> list[JobRow]:
        """All jobs ever submitted, oldest first."""
        rows = self._connection.execute("SELECT id, digest, toml FROM jobs ORDER BY number")
        return [JobRow(id=job, digest=digest, toml=toml) for job, digest, toml in rows]

    def records(self, job: str, since: int, limit: int, max_bytes: int) -> list[Stored]:
        """Records from `since` on, in order; at most `limit` and `max_bytes`, but one if there is any."""
        rows = self._connection.execute(
            "SELECT body FROM records WHERE job = ? AND seq >= ? ORDER BY seq LIMIT ?", (job, since, limit)
        )
        found: list[Stored] = []
        total = 0
        for (body,) in rows:
            total += len(body)
            if found and total > max_bytes:
                break
            found.append(Stored(packing.record(body), len(body)))
        return found

    def batches(self, after: int, limit: int, max_bytes: int) -> list[StoredBatch]:
        """Batches after number `after`, in order, of all segments that are kept; at most `limit` and `max_bytes`
        pressed, but one if there is any."""
        rows = self._connection.execute(
            "SELECT id, now_ns, events, commands FROM batches WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        found: list[StoredBatch] = []
        total = 0
        for row in rows:
            batch = StoredBatch(*row)
            total += len(batch.events) + len(batch.commands)
            if found and total > max_bytes:
                break
            found.append(batch)
        return found

    def oldest_ns(self) -> int | None:
        """When the oldest batch that is kept was stepped."""
        row = self._connection.execute("SELECT now_ns FROM batches ORDER BY id LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    def job_file(self, job: str) -> str | None:
        """The resolved job file."""
        row = self._connection.execute("SELECT toml FROM jobs WHERE id = ?", (job,)).fetchone()
        return None if row is None else str(row[0])

    def job(self, job: str) -> JobRow | None:
        """A job by its id, with the digests of its prompts."""
        row = self._connection.execute(
            "SELECT j.id, j.digest, j.toml, coalesce(p.training, ''), p.evaluation FROM jobs j "
            "LEFT JOIN prompts p USING (id) WHERE j.id = ?",
            (job,),
        ).fetchone()
        if row is None:
            return None
        name, digest, toml, prompts, eval_prompts = row
        return JobRow(id=name, digest=digest, toml=toml, prompts=prompts, eval_prompts=eval_prompts)

    def next_seqs(self) -> dict[str, int]:
        """Number of records of each job that has any."""
        return dict(self._connection.execute("SELECT job, max(seq) + 1 FROM records GROUP BY job ORDER BY job"))

    def persisted(self) -> dict[str, int]:
        """How many records of each job the recorder has written, oldest job first."""
        return dict(self._connection.execute("SELECT id, persisted FROM jobs ORDER BY number"))

    def finished(self) -> dict[str, JobDetail]:
        """Jobs that ended in earlier segments, oldest first."""
        rows = self._connection.execute(
            "SELECT f.id, f.detail FROM finished f JOIN jobs j USING (id) ORDER BY j.number"
        )
        return {job: packing.detail(body) for job, body in rows}
