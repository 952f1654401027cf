"""The journal: every batch of events that the core was given and its answer, on disk before anybody is told.

Owns the transaction of a turn: events, commands, new jobs, records and stream positions stand or fall
together. Must not know what events mean. Invariants: batches are in the order they were stepped; `now`
never decreases; commands are released by the caller only after `commit` returned (group commit).
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from broker.commands import Command, Write
from broker.events import Event
from daemons.driver import packing, schema
from daemons.driver.schema import JournalFull, JournalUnusable
from digend import __version__
from digend.wire.views import JobDetail

KEPT_SEGMENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What the shell keeps of a job beside the core. `digest` covers the resolved config and the prompts.

    `prompts`, `eval_prompts`: digests of the uploads; "" of a job that came before they were kept.
    """

    id: str
    digest: str
    toml: str
    prompts: str = ""
    eval_prompts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One step of the core, to be written whole. `persisted`: (job, next record that the recorder lacks).

    `fields`: what each command is packed as (`packing.fields_of`), which others can use too.
    """

    now_ns: int
    events: tuple[Event, ...]
    commands: tuple[Command, ...]
    jobs: tuple[JobRow, ...] = ()
    persisted: tuple[tuple[str, int], ...] = ()
    fields: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(map(packing.fields_of, self.commands)))


@dataclass(frozen=True, slots=True)
class Batch:
    """A recorded step, as it is replayed; `commands` are the packed bytes that the core answered then."""

    id: int
    segment: int
    now_ns: int
    events: tuple[Event, ...]
    commands: bytes


class Journal:
    """One connection for the process's life. Blocking; a commit is one fsync."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Raises JournalUnusable: damaged, no journal, of a later schema, in use, not writable."""
        self.path = path
        self._lock = None if read_only else schema.lock(path)
        try:
            self.connection = schema.connect(path, read_only=read_only)
        except JournalUnusable:
            self._release()
            raise
        self.epoch = self._meta("epoch")
        self.now_ns = max(self._meta("now_ns"), self._newest_ns())
        self.segment = self._meta("segment")

    def begin(self, *, now_ns: int, finished: Sequence[JobDetail] | None = None) -> None:
        """A driver's life starts: epoch + 1. Durable.

        `finished` says that no job of the current segment is open: these are kept, and a new segment begins.
        """
        epoch, now_ns = self.epoch + 1, max(self.now_ns, now_ns)
        segment = self.segment + 1 if finished is not None or self.segment == 0 else self.segment
        with self._transaction():
            self._put("epoch", epoch)
            self._put("now_ns", now_ns)
            for each in finished or ():
                self._run("INSERT OR REPLACE INTO finished VALUES (?, ?)", (each.job.id, packing.one(each)))
            if segment != self.segment:
                self._put("segment", segment)
                self._run("INSERT INTO segments VALUES (?, ?, ?)", (segment, __version__, now_ns))
                self._run("DELETE FROM batches WHERE segment <= ?", (segment - KEPT_SEGMENTS,))
                self._run("DELETE FROM segments WHERE id <= ?", (segment - KEPT_SEGMENTS,))
        self.epoch, self.segment, self.now_ns = epoch, segment, now_ns

    def commit(self, turn: Turn) -> None:
        """One transaction. Raises JournalFull, after which the same turn may be tried again."""
        with self._transaction():
            if turn.events:
                self._run(
                    "INSERT INTO batches (segment, now_ns, events, commands) VALUES (?, ?, ?, ?)",
                    (
                        self.segment,
                        turn.now_ns,
                        packing.press(turn.events),
                        packing.press_commands(turn.commands, turn.fields),
                    ),
                )
            for row in turn.jobs:
                self._run("INSERT INTO jobs (id, digest, toml) VALUES (?, ?, ?)", (row.id, row.digest, row.toml))
                self._run("INSERT INTO prompts VALUES (?, ?, ?)", (row.id, row.prompts, row.eval_prompts))
            self._append_records(turn)
            for job, next_seq in turn.persisted:
                self._run("UPDATE jobs SET persisted = max(persisted, ?) WHERE id = ?", (next_seq, job))
            if not turn.events:
                self._put("now_ns", turn.now_ns)
        self.now_ns = turn.now_ns

    def keep(self, snapshot: bytes) -> None:
        """A snapshot of the core after the last batch, in the place of the one before. Raises JournalFull."""
        with self._transaction():
            self._run("DELETE FROM snapshots", ())
            self._run(
                "INSERT INTO snapshots SELECT max(id), ?, ? FROM batches", (self.segment, zlib.compress(snapshot, 1))
            )

    def snapshot(self) -> tuple[int, bytes] | None:
        """(number of its batch, what was kept), of the current segment; None where there is none that can be read."""
        try:
            row = self.connection.execute(
                "SELECT batch, body FROM snapshots WHERE segment = ?", (self.segment,)
            ).fetchone()
            return None if row is None else (int(row[0]), zlib.decompress(row[1]))
        except (sqlite3.Error, zlib.error):
            return None

    def batches(self, segment: int | None = None, after: int = 0) -> Iterator[Batch]:
        """Recorded steps of a segment (the current one if missing) behind number `after`, in order. Raises
        JournalUnusable."""
        rows = self.connection.execute(
            "SELECT id, segment, now_ns, events, commands FROM batches WHERE segment = ? AND id > ? ORDER BY id",
            (self.segment if segment is None else segment, after),
        )
        try:
            for number, part, now_ns, events, commands in rows:
                yield Batch(number, part, now_ns, packing.events(events), packing.unpress(commands))
        except (sqlite3.Error, ValueError) as error:
            raise JournalUnusable(f"{self.path}: {self._unreadable(error)}") from error

    def _unreadable(self, error: Exception) -> str:
        """Damage, or what another version wrote."""
        writers = {digend for segment, digend in self.segments() if segment == self.segment} - {__version__}
        by = f" (written by digend {', '.join(writers)}, this is {__version__})" if writers else ""
        return f"damaged journal: {error}{by}"

    def segments(self) -> list[tuple[int, str]]:
        """(segment, version of digend that wrote it), oldest first."""
        return list(self.connection.execute("SELECT id, digend FROM segments ORDER BY id"))

    def close(self) -> None:
        self.connection.close()
        self._release()

    def _append_records(self, turn: Turn) -> None:
        rows = [
            (each.record.job, each.record.seq, packing.record_row(fields))
            for each, fields in zip(turn.commands, turn.fields, strict=True)
            if isinstance(each, Write)
        ]
        self.connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self.connection, self.path)

    def _run(self, statement: str, values: tuple[object, ...]) -> None:
        self.connection.execute(statement, values)

    def _meta(self, key: str) -> int:
        value: int = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]
        return value

    def _newest_ns(self) -> int:
        """Of the last batch; what is newer and in none is in `meta`, which is a page more to write."""
        row = self.connection.execute("SELECT now_ns FROM batches ORDER BY id DESC LIMIT 1").fetchone()
        return 0 if row is None else int(row[0])

    def _put(self, key: str, value: int) -> None:
        self._run("UPDATE meta SET value = ? WHERE key = ?", (value, key))

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()


class _Transaction:
    """BEGIN to COMMIT; lack of room becomes JournalFull and leaves nothing behind."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def __enter__(self) -> Self:
        self._guarded("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._guarded("COMMIT")
            return
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            raise self._named(error) from error

    def _guarded(self, statement: str) -> None:
        try:
            self._connection.execute(statement)
        except sqlite3.Error as error:
            self._roll_back()
            raise self._named(error) from error

    def _roll_back(self) -> None:
        # SQLite may have rolled back by itself, as it does on a full disk.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _named(self, error: sqlite3.Error) -> Exception:
        if schema.is_full(error, self._path):
            return JournalFull(f"{self._path}: {error}")
        return JournalUnusable(f"{self._path}: {error}")
