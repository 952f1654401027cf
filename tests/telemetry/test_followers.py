"""What a rank follows rank 0 in is work: in the table of seconds, on the timeline, in the report's rows."""

from daemons.recorder.stagerows import stage_rows
from digend.telemetry.stages import stage_table
from digend.telemetry.timeline import Timeline
from digend.wire import records as r
from digend.wire.records import Record

S = 1_000_000_000


def test_it_is_work_and_what_it_waits_for_is_not() -> None:
    bodies: list[tuple[int, r.RecordBody]] = [
        (0, r.JobState(state="preparing", reason="")),
        (4, r.IdleRecord(worker="t", start_ns=0, end_ns=4 * S, cause="follows commit", bubble=False)),
        (9, r.IdleRecord(worker="t", start_ns=4 * S, end_ns=9 * S, cause="generation", bubble=True)),
    ]
    records = [Record(job="j", seq=seq, at_ns=at * S, body=body) for seq, (at, body) in enumerate(bodies)]
    table, timeline = stage_table(records), Timeline()
    for record in records:
        timeline.add(record)
    assert table.seconds["t"]["follows commit"] == 4.0
    assert table.seconds["t"]["bubble: generation"] == 5.0
    assert [(span.kind, span.title) for span in timeline.spans] == [
        ("optimizer", "follows commit"),
        ("bubble", "bubble: generation"),
    ]
    rows = {row.stage: (row.group, row.kind) for row in stage_rows(table)}
    assert rows["follows commit"] == ("work", "optimizer")
