"""The driver's metrics: labels stay in closed sets whatever records say, series of what is gone go."""

from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from daemons.driver.summaries import Summaries
from daemons.metrics.driver import MAX_FIGURES, DriverMetrics
from digend.telemetry.figures import figures
from digend.wire.records import IdleRecord, Record, RecordBody, StepRecord, TaskFailure, TaskRecord
from digend.wire.tasks import Receipt
from digend.wire.views import JobView, NodeView, StatusView
from tests.broker.support import evaluation, finished, job
from tests.recorder.plausible import plausible_run


def _samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _record(body: RecordBody, job: str = "j") -> Record:
    return Record(job=job, seq=0, at_ns=0, body=body)


def _status(job: JobView | None = None, nodes: tuple[NodeView, ...] = ()) -> StatusView:
    return StatusView(
        epoch=1,
        uptime_s=1.0,
        nodes=nodes,
        sq_depth=2,
        sq_oldest_s=0.5,
        uq_depth=0,
        uq_oldest_s=None,
        job=job,
        queued=1,
        bubble_share=None,
        sq_bytes=4096,
    )


def _job(number: int) -> JobView:
    return JobView(
        id=f"job-{number}",
        name="n",
        state="running",
        reason="",
        global_step=number,
        num_global_steps=9,
        policy_version=number,
        incarnation=0,
        reward=None,
        submitted_ns=0,
        started_ns=0,
        finished_ns=None,
    )


def _node(name: str) -> NodeView:
    node, role, _ = name.split("/")
    return NodeView(
        name=name,
        role=role,
        node=node,
        state="idle",
        doing="",
        device="cpu",
        pid=1,
        session="s",
        heartbeat_age_s=0.1,
        tasks_done=0,
        versions={},
    )


def test_nothing_that_records_say_makes_series_without_end() -> None:
    metrics = DriverMetrics()
    step = next(record.body for record in plausible_run() if isinstance(record.body, StepRecord))
    for number in range(1000):
        receipt = Receipt(total_ns=10, stages=((f"stage-{number}", 5),))
        where = {"worker": f"node/role-{number}/0", "start_ns": 0, "end_ns": 10}
        task = TaskRecord(task=f"task-{number}", lease=f"1.{number}", receipt=receipt, **where)  # type: ignore[arg-type]
        metrics.record(_record(task, job=f"job-{number}"))
        metrics.record(_record(IdleRecord(cause=f"prompt {number}", bubble=True, **where)))  # type: ignore[arg-type]
        metrics.record(_record(TaskFailure(worker="w", task=f"task-{number}", reason="r", message="m")))
        metrics.status(_status(_job(number)))
    many = {f"part-{number}": 1.0 for number in range(1000)}
    metrics.record(_record(replace(step, components=many)))
    found = _samples(metrics.board.registry)
    assert len(found) < 400
    text = str(list(found))
    assert "prompt 7" not in text
    assert "task-7" not in text
    assert len([key for key in found if key[0] == "digend_job_figure"]) == MAX_FIGURES
    assert [key for key in found if key[0] == "digend_current_job_info"] == [
        ("digend_current_job_info", (("job", "job-999"), ("name", "n")))
    ]


def test_a_worker_that_is_gone_has_no_series() -> None:
    metrics = DriverMetrics()
    metrics.status(_status(nodes=(_node("a/generator/0"), _node("b/trainer/0"))))
    metrics.status(_status(nodes=(_node("b/trainer/0"),)))
    up = [labels for name, labels in _samples(metrics.board.registry) if name == "digend_worker_up"]
    assert up == [(("node", "b"), ("role", "trainer"), ("slot", "0"))]


def test_queues_and_their_age() -> None:
    metrics = DriverMetrics()
    metrics.status(_status())
    found = _samples(metrics.board.registry)
    assert found["digend_queue_depth", (("queue", "sq"),)] == 2
    assert found["digend_queue_oldest_seconds", (("queue", "sq"),)] == 0.5
    assert found["digend_queue_bytes", (("queue", "sq"),)] == 4096
    assert found["digend_queue_bytes", (("queue", "uq"),)] == 0
    assert ("digend_queue_oldest_seconds", (("queue", "uq"),)) not in found


def test_figures_are_those_of_the_newest_step_and_evaluation() -> None:
    metrics = DriverMetrics()
    bodies = [record.body for record in plausible_run()]
    for body in bodies:
        metrics.record(_record(body))
    last: dict[str, float] = {}
    for body in bodies:
        last |= figures(body)
    found = {
        dict(labels)["figure"]: value
        for (name, labels), value in _samples(metrics.board.registry).items()
        if name == "digend_job_figure"
    }
    assert found == last


def test_a_driver_that_was_restarted_shows_the_figures_that_it_showed_before() -> None:
    simulation = finished(job(num_global_steps=2, evaluation=evaluation(1)))
    before, core = DriverMetrics(), simulation.core
    summaries = Summaries(core)
    for record in simulation.records["j1"]:
        before.record(record)
        summaries.add(record)
    after = DriverMetrics()
    after.begin_with(*summaries.newest())
    shown = {key: value for key, value in _samples(before.board.registry).items() if key[0] == "digend_job_figure"}
    assert shown
    assert {k: v for k, v in _samples(after.board.registry).items() if k[0] == "digend_job_figure"} == shown
    nothing = DriverMetrics()
    nothing.begin_with(*Summaries(core).newest())
    assert not [key for key in _samples(nothing.board.registry) if key[0] == "digend_job_figure"]
