"""What handing over weights and gradients took, as `digenctl explain` and the table of stages tell it."""

from clients.explain_text import job_lines
from daemons.recorder.stagerows import stage_rows
from digend.telemetry.explain import explain
from digend.telemetry.publishings import publishings
from digend.telemetry.stages import stage_table
from digend.telemetry.timeline import Timeline
from digend.telemetry.trail import Trail
from digend.wire.records import JobState, Record, RecordBody, StagingRecord, TaskRecord
from digend.wire.tasks import Receipt

S = 1_000_000_000


def task(name: str, start: int, end: int, **stages: float) -> TaskRecord:
    receipt = Receipt(total_ns=(end - start) * S, stages=tuple((stage, int(s * S)) for stage, s in stages.items()))
    worker = "n/trainer/0" if name in ("update", "commit") else "n/generator/0"
    return TaskRecord(worker=worker, task=name, lease=str(start), start_ns=start * S, end_ns=end * S, receipt=receipt)


def staging(pull: float, check: float, error: str = "") -> StagingRecord:
    return StagingRecord(
        worker="n/generator/0", incarnation=0, version=1, start_ns=0, end_ns=S, num_bytes=1,
        pull_ns=int(pull * S), check_ns=int(check * S), error=error,
    )  # fmt: skip


BODIES: tuple[RecordBody, ...] = (
    JobState(state="running"),
    task("update", 0, 4, gather=1.0, update=3.0),
    task("update", 4, 8, gather=0.5, update=3.5),
    task("commit", 8, 10, gather=0.4, optimizer=1.0, cast=0.1, publish=0.5),
    staging(0.25, 0.125),
    staging(9.0, 0.0, "its owner is gone"),
    task("generate", 10, 12, swap=0.0625, generate=1.9),
    JobState(state="completed"),
)
RECORDS = [Record(job="j", seq=seq, at_ns=12 * S if seq else 0, body=body) for seq, body in enumerate(BODIES)]


def test_parts_of_publishing_and_of_updates() -> None:
    found = explain(Trail(RECORDS))
    assert found is not None
    assert found.publishings is not None
    each = found.publishings
    assert (each.num_commits, each.optimizer_s, each.gather_s, each.cast_s, each.publish_s) == (1, 1.0, 0.4, 0.1, 0.5)
    assert (each.send_s, each.stage_s, each.swap_s) == (0.25, 0.125, 0.0625)
    assert (each.update_gather_s, each.update_share) == (0.75, 1.5 / 8)
    lines = list(job_lines(found))
    assert (
        "versions   1 optimizer step: optimizer 1.000 s, gather 0.400 s, cast 0.100 s, publish 0.500 s, send 0.250 s, "
        "stage 0.125 s, swap 0.062 s (medians)"
    ) in lines
    assert "ranks      gather 0.750 s an update (median), 18.8 % of updates" in lines


def test_nothing_is_told_before_the_first_optimizer_step() -> None:
    assert publishings([task("update", 0, 4, gather=1.0)], []) is None


def test_gathering_of_updates_is_a_stage_of_its_own() -> None:
    table, timeline = stage_table(RECORDS), Timeline()
    for record in RECORDS:
        timeline.add(record)
    assert table.seconds["n/trainer/0"] | {"other": 0.0} == {
        "update_gather": 1.5, "update": 6.5, "gather": 0.4, "optimizer": 1.0, "cast": 0.1, "publish": 0.5, "other": 0.0
    }  # fmt: skip
    rows = {row.stage: row.kind for row in stage_rows(table)}
    assert (rows["update: gather"], rows["gather"]) == ("update", "publish")
    assert ("update", "update, gather · update") in [(span.kind, span.title) for span in timeline.spans]
