"""The journal's file: its tables, how it is opened, and which of its errors mean what.

Owns the SQLite file format. Invariant: a file that is not ours, damaged, or of a later schema is refused
by name and not written to.
"""

import fcntl
import shutil
import sqlite3
from pathlib import Path
from typing import IO

SCHEMA = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE segments (id INTEGER PRIMARY KEY, digend TEXT NOT NULL, started_ns INTEGER NOT NULL);
CREATE TABLE batches (id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, now_ns INTEGER NOT NULL,
                      events BLOB NOT NULL, commands BLOB NOT NULL);
CREATE TABLE records (job TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
                      PRIMARY KEY (job, seq)) WITHOUT ROWID;
CREATE TABLE jobs (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, digest TEXT NOT NULL,
                   toml TEXT NOT NULL, persisted INTEGER NOT NULL DEFAULT 0);
CREATE TABLE finished (id TEXT PRIMARY KEY, detail BLOB NOT NULL);
INSERT INTO meta VALUES ('epoch', 0), ('now_ns', 0), ('segment', 0);
"""

_ADDED = "CREATE TABLE IF NOT EXISTS prompts (id TEXT PRIMARY KEY, training TEXT NOT NULL, evaluation TEXT)"
"""Digests of each job's prompts, as uploaded. A journal that was made without it gets it."""

_SNAPSHOTS = (
    "CREATE TABLE IF NOT EXISTS snapshots (batch INTEGER PRIMARY KEY, segment INTEGER NOT NULL, body BLOB NOT NULL)"
)
"""The core's state after a batch: the newest only."""

_DROPPED = "DROP INDEX IF EXISTS batches_by_segment"
"""Batches are read in order of `id`, all of them or from one on; the index was a page more to write each turn."""

_NO_ROOM_BYTES = 1 << 20


class JournalUnusable(Exception):
    """The journal cannot be used as it is; the message names the file. Nothing was written to it."""


class JournalFull(Exception):
    """A turn could not be written for lack of room; it may be tried again."""


def lock(path: Path) -> IO[bytes]:
    """Holds the journal until the file is closed. Raises JournalUnusable if another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = path.with_name(path.name + ".lock").open("ab")
    except OSError as error:
        raise JournalUnusable(f"{path}: {error.strerror or error}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.close()
        raise JournalUnusable(f"{path}: another driver uses this journal") from error
    return held


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """The one connection: WAL, every commit on disk before it returns. Raises JournalUnusable."""
    try:
        new = not path.exists() or path.stat().st_size == 0
        if new and read_only:
            raise JournalUnusable(f"{path}: there is no journal")
        mode = "ro" if read_only else "rwc"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise JournalUnusable(f"{path}: {error}") from error
    try:
        _check(connection, path, new)
        if not read_only:
            _prepare(connection, new)
    except sqlite3.Error as error:
        connection.close()
        raise JournalUnusable(f"{path}: {error}") from error
    except JournalUnusable:
        connection.close()
        raise
    return connection


def is_full(error: Exception, path: Path) -> bool:
    """Whether `error` is lack of room, and not damage: SQLite reports a full disk in more than one way."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name == "SQLITE_FULL":
        return True
    return name.startswith("SQLITE_IOERR") and free_bytes(path) < _NO_ROOM_BYTES


def free_bytes(path: Path) -> int:
    """Room left where `path` lies, for this user."""
    return shutil.disk_usage(path.parent).free


def _check(connection: sqlite3.Connection, path: Path, new: bool) -> None:
    if new:
        return
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != SCHEMA:
        raise JournalUnusable(f"{path}: journal schema {found}, this digend reads {SCHEMA}")
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise JournalUnusable(f"{path}: damaged journal: {damage}")


def _prepare(connection: sqlite3.Connection, new: bool) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if new:
        connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
    connection.execute(_ADDED)
    connection.execute(_SNAPSHOTS)
    connection.execute(_DROPPED)
