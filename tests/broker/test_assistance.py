"""TAG: how often, when never, and what happens to what the trainer was generating when it is lost."""

from collections import Counter
from dataclasses import replace

import pytest

from broker.schedule.named import strategy_of
from broker.spec import JobSpec
from broker.strategies import Always, Answer, Never, Static, TrainerView
from digend.wire.records import Decision, StepRecord, TaskRecord
from digend.wire.tasks import GenerateTask
from tests.broker.audit import audit
from tests.broker.support import TIMES, TRAINER, S, bodies, evaluation, finished, job, simulate
from tests.broker.test_global_step import sent


@pytest.mark.parametrize(("strategy", "expected"), [("never", 0), ("static:0", 0), ("static:1", 1), ("static:2", 2)])
def test_counts_a_step(strategy: str, expected: int) -> None:
    simulation = finished(job(strategy=strategy), 1)
    assert [record.assisted_micro_batches for record in bodies(simulation, StepRecord)] == [expected] * 2
    assists = [body for body in bodies(simulation, TaskRecord) if body.task == "assist"]
    assert {body.worker for body in assists} <= {TRAINER}
    assert len(assists) == 2 * expected


def test_static_takes_no_more_than_there_is() -> None:
    simulation = finished(job(strategy="static:9", num_global_steps=1), 1)
    (record,) = bodies(simulation, StepRecord)
    assert 2 <= record.assisted_micro_batches <= 3
    audit(simulation, job(strategy="static:9", num_global_steps=1))


def test_always_helps_only_where_uq_is_empty() -> None:
    simulation = finished(job(strategy="always"), 1)
    decisions = bodies(simulation, Decision)
    assert decisions
    for decision in decisions:
        expected = "update" if decision.ready else "tag" if decision.pending else "wait"
        assert decision.answer == expected


def test_never_while_an_evaluation_claims() -> None:
    spec = job(strategy="always", evaluation=evaluation(6, every=1))
    simulation = finished(spec, 1, times=replace(TIMES, evaluate=S))
    spans = {
        task: [(body.start_ns, body.end_ns) for body in bodies(simulation, TaskRecord) if body.task == task]
        for task in ("assist", "evaluate")
    }
    assert spans["assist"]
    for start, end in spans["assist"]:
        assert not [span for span in spans["evaluate"] if span[0] < end and start < span[1]]


@pytest.mark.parametrize("spec", [job(strategy="always", deterministic=True), job(strategy="always", generators=())])
def test_never_where_it_would_change_numbers_or_has_no_meaning(spec: JobSpec) -> None:

    simulation = finished(spec, 1 if spec.generators is None else 0)
    assert [record.assisted_micro_batches for record in bodies(simulation, StepRecord)] == [0, 0]
    assert not [body for body in bodies(simulation, TaskRecord) if body.task == "assist"]


@pytest.mark.parametrize("noticed", [True, False])
def test_trainer_lost_while_it_helps(noticed: bool) -> None:
    """Its half-made micro-batch is made by whoever holds the version; it does not count as assisted then."""
    spec = job(strategy="static:1", num_global_steps=1)
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: any(lease.label == "assist" for lease in simulation.core.state.leases.values()))
    simulation.at(simulation.now_ns + S // 2, lambda: simulation.kill(TRAINER, 2 * S, noticed=noticed))
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    made = Counter(
        (order.task.micro_batch, order.task.assist)
        for order in sent(simulation, GenerateTask)
        if isinstance(order.task, GenerateTask)
    )
    lost = next(micro_batch for micro_batch, assist in made if assist)
    assert made[lost, False] >= 1


def test_its_samples_are_scored_and_trained_on_like_others() -> None:
    spec = job(strategy="always", scoring="dedicated")
    simulation = finished(spec, 1, 1)
    audit(simulation, spec)
    assert sum(record.assisted_micro_batches for record in bodies(simulation, StepRecord)) > 0


def view(pending: int = 0, ready: int = 0, assisted: int = 0) -> TrainerView:
    return TrainerView(pending=pending, ready=ready, in_flight=0, assisted=assisted)


def test_strategies_by_the_table() -> None:
    assert [Never().decide(view(ready=ready, pending=3)) for ready in (0, 1)] == [Answer.WAIT, Answer.UPDATE]
    assert Always().decide(view(ready=1, pending=3)) is Answer.UPDATE
    assert Always().decide(view(pending=3)) is Answer.TAG
    assert Always().decide(view()) is Answer.WAIT
    static = Static(2)
    assert static.decide(view(ready=5, pending=1, assisted=1)) is Answer.TAG
    assert static.decide(view(ready=5, pending=1, assisted=2)) is Answer.UPDATE
    assert static.decide(view(ready=0, pending=1, assisted=2)) is Answer.WAIT
    assert static.decide(view(ready=0, pending=0, assisted=0)) is Answer.WAIT


def test_names_of_strategies() -> None:
    assert strategy_of("static:12") == Static(12)
    for name in ("static", "static:", "static:-1", "static:x", "sometimes"):
        with pytest.raises(ValueError, match="strategy"):
            strategy_of(name)
