"""One run folder: events.jsonl first, everything else made from it.

Owns the order of writing. Knows no session. Invariant: `next_seq` never passes what is durably in
events.jsonl; an object of this class that raised is thrown away, and opening the folder again does what
opening it after `kill -9` does.

Pictures come before the line that asks for them: once the line is acknowledged, their owners free them.
"""

import json
import math
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from daemons.recorder.eventlog import EventLog
from daemons.recorder.files import replace
from daemons.recorder.pictures import Pictures, Puller, sheet_name
from daemons.recorder.report import write_report
from daemons.recorder.story import Story, read_config
from daemons.trackers.protocol import is_logged
from daemons.trackers.trackers import Trackers
from digend.telemetry.logs import logger
from digend.telemetry.stages import FINAL_STATES
from digend.telemetry.trace import events_of, trace_lines
from digend.wire.records import CheckpointRecord, EvaluationRecord, JobState, Record, RestartRecord, StepRecord
from digend.wire.views import SCHEMA_VERSION, JobDetail

EVENTS, SUMMARY, JOB = "events.jsonl", "summary.json", "job.toml"
TRACE = "timeline.json"

log = logger()


class Run:
    """Opened by reading what is there. Every method may raise OSError; then drop the object and open again."""

    def __init__(self, folder: Path, puller: Puller) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._pictures = Pictures(folder=folder / "samples", puller=puller)
        config = read_config(folder / JOB)
        self._story = Story(config)
        past: list[Record] = []

        def visit(record: Record) -> None:
            self._story.add(record)
            if is_logged(record):
                past.append(record)

        self._log = EventLog(folder / EVENTS, visit)
        if self._log.num_cut_bytes:
            log.warning("cut a torn end off events.jsonl", run=folder.name, num_bytes=self._log.num_cut_bytes)
        self._trackers = Trackers(folder, config, past)
        state = self._story.detail().job.state
        if state in FINAL_STATES:
            self._trackers.finish(state)

    @property
    def next_seq(self) -> int:
        return self._log.next_seq

    def append(self, records: Sequence[Record]) -> None:
        """Write records that follow on `next_seq`; on return they are on disk, and so is what is made from
        them.
        """
        for record in records:
            if isinstance(record.body, EvaluationRecord):
                self._draw(record.body)
        self._log.append(records)
        for record in records:
            self._story.add(record)
        self._track(records)
        if any(_changes_summary(record) for record in records):
            self.tell(with_report=any(_changes_report(record) for record in records))

    def tell(self, *, with_report: bool) -> None:
        """Write report.html, timeline.json (if asked) and summary.json, in this order: a summary vouches for them."""
        if with_report:
            self._report()
        replace(self._folder / SUMMARY, summary_json(self._story.detail()))

    @property
    def trackers(self) -> Trackers:
        return self._trackers

    def _track(self, records: Sequence[Record]) -> None:
        """Each sheet right behind its record: a tracker's axis may only go forward."""
        logged: list[Record] = []
        for record in records:
            body = record.body
            if is_logged(record):
                logged.append(record)
            if isinstance(body, EvaluationRecord):
                self._trackers.log(logged)
                logged = []
                self._show(body, record)
        self._trackers.log(logged)
        last = records[-1].body if records else None
        if isinstance(last, JobState) and last.state in FINAL_STATES:
            self._trackers.finish(last.state)
        self._story.tracker_troubles = self._trackers.troubles

    def _show(self, evaluation: EvaluationRecord, record: Record) -> None:
        sheet = self._folder / "samples" / sheet_name(evaluation)
        if sheet.exists():
            self._trackers.image(evaluation.label, sheet, record)

    def _draw(self, evaluation: EvaluationRecord) -> None:
        try:
            self._pictures.take(evaluation)
        except OSError:
            raise
        except Exception:  # pictures may be of any kind; the record is worth more than its sheet
            log.error(
                "cannot draw an evaluation",
                run=self._folder.name,
                global_step=evaluation.global_step,
                traceback=traceback.format_exc(limit=-6),
            )

    def _report(self) -> None:
        try:
            write_report(self._folder, self._story)
            trace = trace_lines(events_of(self._story.timeline))
            replace(self._folder / TRACE, "".join(trace).encode())
        except OSError:
            raise
        except Exception:  # a report can be made again from events.jsonl; the stream must go on
            log.error("cannot make the report", run=self._folder.name, traceback=traceback.format_exc(limit=-6))


def begin(folder: Path, config: str | None) -> None:
    """Make the folder of a new run, its resolved job file first. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None and not (folder / JOB).exists():
        replace(folder / JOB, config.encode())


def summary_json(detail: JobDetail) -> bytes:
    """`summary.json`, the same document as `digenctl show job ID --json`."""
    document = _finite({"schema_version": SCHEMA_VERSION, **asdict(detail)})
    return (json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _changes_summary(record: Record) -> bool:
    return isinstance(record.body, JobState | StepRecord | EvaluationRecord | CheckpointRecord | RestartRecord)


def _changes_report(record: Record) -> bool:
    body = record.body
    return isinstance(body, EvaluationRecord) or (isinstance(body, JobState) and body.state in FINAL_STATES)
