"""The record stream to the recorder: in order, without holes, a few batches ahead of what it has written.

Owns the position of the one recorder session. Must not know what records mean. Invariant: a record is
sent only after the turn that made it is journalled, and again from where the recorder says it is whenever
it says HELLO.
"""

from collections.abc import Callable, Mapping

from daemons.driver.archive import Archive
from digend.wire.protocol import MAX_MESSAGE_BYTES
from digend.wire.records import Notice, Record
from digend.wire.workers import Records

WINDOW = 4
"""Batches on their way that the recorder has not acknowledged."""
BATCH_RECORDS = 200
BATCH_BYTES = MAX_MESSAGE_BYTES - 32 * 1024


class RecordStream:
    """`configs`: resolved job file of each job; it grows as jobs are submitted. `send(session, message)`."""

    def __init__(self, archive: Archive, configs: Mapping[str, str], send: Callable[[str, Records], None]) -> None:
        self._archive = archive
        self._configs = configs
        self._send = send
        self._ends = archive.next_seqs()
        persisted = archive.persisted()
        self._over = {job: persisted[job] for job in archive.finished() if persisted[job] >= self._ends.get(job, 0)}
        self._session: str | None = None
        self._next: dict[str, int] = {}
        self._flying: list[tuple[str, int]] = []

    def attach(self, session: str, written: Mapping[str, int]) -> None:
        """A recorder said HELLO. Jobs it does not name start at 0, unless written and over long ago."""
        self._session = session
        self._next = {**self._over, **written}
        self._flying = []

    def detach(self, session: str) -> None:
        if session == self._session:
            self._session = None

    def appended(self, record: Record) -> None:
        """A record was journalled."""
        self._ends[record.job] = record.seq + 1

    def written(self, session: str, job: str, next_seq: int) -> None:
        """The recorder has everything of `job` below `next_seq`."""
        if session == self._session:
            self._flying = [each for each in self._flying if each[0] != job or each[1] > next_seq]

    def pump(self) -> None:
        """Sends what the window allows."""
        for job, end in self._ends.items():
            while self._session is not None and len(self._flying) < WINDOW and self._next.get(job, 0) < end:
                self._send_batch(self._session, job)

    def _send_batch(self, session: str, job: str) -> None:
        since = self._next.get(job, 0)
        configs = {job: self._configs[job]} if since == 0 and job in self._configs else {}
        room = BATCH_BYTES - sum(len(toml.encode()) for toml in configs.values())
        stored = self._archive.records(job, since, BATCH_RECORDS, room)
        records = tuple(each.record if each.num_bytes <= room else too_large(each.record) for each in stored)
        self._next[job] = records[-1].seq + 1
        self._flying.append((job, self._next[job]))
        self._send(session, Records(session=session, records=records, configs=configs))


def too_large(record: Record) -> Record:
    """Stands for a record that fits no message, so that the numbers have no hole."""
    message = f"record {record.seq} ({record.body.kind}) fits no message and is only in the journal"
    return Record(job=record.job, seq=record.seq, at_ns=record.at_ns, body=Notice(level="warning", message=message))
