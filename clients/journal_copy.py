"""A copy of the driver's journal while the driver writes to it: SQLite's own backup, never a copy of files.

Knows of the journal's tables only `jobs`. Invariant: the copy is one file, consistent, that `python -m daemons.replay`
reads; the journal itself is opened for reading only.
"""

import sqlite3
from pathlib import Path

from clients.secrets_in_text import masked_toml


class NoJournal(Exception):
    """It cannot be copied; the message says why."""


def copy_journal(journal: Path, copy: Path) -> None:
    """Raises NoJournal."""
    if not journal.is_file():
        raise NoJournal(f"{journal} is not on this box")
    try:
        source = _opened(journal)
        try:
            target = sqlite3.connect(copy, isolation_level=None)
            try:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                target.close()
        finally:
            source.close()
    except sqlite3.Error as error:
        raise NoJournal(f"{journal}: {error}") from error


def jobs_with_secrets(copy: Path) -> list[str]:
    """Jobs of a copied journal whose options look like secrets. Raises NoJournal."""
    try:
        connection = _opened(copy)
        try:
            rows = connection.execute("SELECT id, toml FROM jobs ORDER BY number").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise NoJournal(f"{copy.name}: {error}") from error
    return [str(job) for job, toml in rows if masked_toml(toml) != toml]


def _opened(path: Path) -> sqlite3.Connection:
    """For reading. Where nobody has it open and the folder cannot be written, SQLite takes it only as immutable."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return connection
