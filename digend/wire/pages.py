"""Requests and replies that read on, page by page: a job's records, the story of a thing (docs/protocol.md).

Apart from `requests` and `replies`, because records are made of most that a worker is told.
"""

from dataclasses import dataclass

from digend.wire.records import Record
from digend.wire.story import StoryCursor, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRecords:
    """Records of a job from `since` on, at most 200 and at most what fits one message."""

    request: str
    job: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    request: str
    records: tuple[Record, ...]
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetStory:
    """Transitions of what `subject` names (`digend.wire.subjects`), from where the cursor of the last page stands."""

    request: str
    subject: str
    cursor: StoryCursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryPage:
    """A bounded part of the journal, read; `cursor` is None at its end. A page may hold no transition."""

    request: str
    transitions: tuple[Transition, ...]
    cursor: StoryCursor | None
