"""Stories out of the journal, a bounded page at a time.

Owns which part of the journal a page reads. Must not know what a transition is (`story.py`). Invariant: a page costs
at most `PAGE_BATCHES` batches and `PAGE_BYTES` of pressed ones, whatever is asked: the driver's loop is not held up.

Where the journal has dropped the batches of a job (`journal.KEPT_SEGMENTS`), its records are read instead, which say
less: no leases.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from daemons.driver import packing
from daemons.driver.archive import Archive, StoredBatch
from daemons.driver.record_words import of_record
from daemons.driver.story import READ, SESSIONS, Item, Story
from digend.wire.story import StoryCursor, Transition
from digend.wire.subjects import Subject
from digend.wire.views import JobView

PAGE_BATCHES = 400
PAGE_BYTES = 64 * 1024
PAGE_RECORDS = 400
PAGE_TEXT_BYTES = 100 * 1024
"""After so much text a page ends with the batch that it came from; the rest of a message is room for that batch."""

AFTERWARDS_NS = 120_000_000_000
"""How long after a job's end something may still happen to what was part of it."""

ALL_READ = -1

Page = tuple[tuple[Transition, ...], StoryCursor | None]


class Chronicle:
    """Reads over the journal's archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def page(self, subject: Subject, job: JobView | None, cursor: StoryCursor | None) -> Page:
        """Transitions from the cursor on, and where the next page begins; `job` is the subject's. Raises ValueError."""
        begun = cursor or StoryCursor(record=0 if self._dropped(job) else ALL_READ)
        if begun.record != ALL_READ:
            return self._of_records(subject, begun)
        return self._of_batches(subject, job, begun)

    def _dropped(self, job: JobView | None) -> bool:
        oldest = self._archive.oldest_ns()
        return job is not None and (oldest is None or job.submitted_ns < oldest)

    def _of_records(self, subject: Subject, cursor: StoryCursor) -> Page:
        oldest = self._archive.oldest_ns()
        stored = self._archive.records(subject.job, cursor.record, PAGE_RECORDS, PAGE_BYTES)
        records = [each.record for each in stored if oldest is None or each.record.at_ns < oldest]
        updates = self._updates(subject.job)
        told = tuple(
            replace(each, at_ns=record.at_ns)
            for record in records
            for each in of_record(record, subject, begun=True, alone=True, updates=updates)
        )
        done = len(records) < len(stored) or not stored
        return told, StoryCursor(record=ALL_READ if done else cursor.record + len(records))

    def _updates(self, job: str) -> int:
        """Global steps that a rollout of the job feeds."""
        table = tomllib.loads(self._archive.job_file(job) or "")
        return int(table.get("training", {}).get("updates_per_rollout", 1))

    def _of_batches(self, subject: Subject, job: JobView | None, cursor: StoryCursor) -> Page:
        story, after = Story(subject, cursor), cursor.batch
        batches = self._archive.batches(after, PAGE_BATCHES, PAGE_BYTES)
        told: list[Transition] = []
        room = PAGE_TEXT_BYTES
        for batch in batches:
            if job is not None and _is_over(subject, job, batch.now_ns):
                return tuple(told), None
            fresh = [each for item in items(batch, job) for each in story.take(batch.now_ns, item)]
            told += fresh if _has_begun(job, batch.now_ns) else []
            after = batch.id
            room -= sum(len(each.what.encode()) + len(each.cause.encode()) + 128 for each in fresh)
            if room < 0:
                break
        return tuple(told), story.cursor(ALL_READ, after) if batches else None


def items(batch: StoredBatch, job: JobView | None) -> Iterator[Item]:
    """Events and then commands of a batch that a story is told from; before its job was there, who the workers are."""
    wanted = READ if _has_begun(job, batch.now_ns) else SESSIONS
    for packed in (batch.events, batch.commands):
        yield from cast("Iterator[Item]", packing.chosen(packed, wanted))


def _has_begun(job: JobView | None, at_ns: int) -> bool:
    return job is None or at_ns >= job.submitted_ns


def _is_over(subject: Subject, job: JobView, at_ns: int) -> bool:
    """Whether nothing of it can follow: a job's own story ends with the job."""
    longer_ns = 0 if subject.kind == "job" else AFTERWARDS_NS
    return job.finished_ns is not None and at_ns > job.finished_ns + longer_ns
