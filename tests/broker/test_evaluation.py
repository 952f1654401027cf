"""Evaluation: a named pause at the right global steps, pinned to one version, once for the same weights."""

from dataclasses import replace
from math import isfinite

import pytest

from broker.harness import Simulation
from broker.harness_engine import Sample, honest
from broker.spec import JobSpec
from digend.wire.records import EvaluationRecord, IdleRecord, RestartRecord, StepRecord, TaskRecord
from digend.wire.tasks import GenerateTask, ResultBody, SampleScore, ScoreResult, ScoreTask, TaskBody, TaskError
from tests.broker.audit import audit, check_seconds, worker_states
from tests.broker.support import (
    GENERATOR,
    TIMES,
    TRAINER,
    S,
    bodies,
    evaluation,
    finished,
    job,
    last_state,
    prompts,
    simulate,
)
from tests.broker.test_global_step import sent

SLOW = replace(TIMES, evaluate=2 * S)


def labels(simulation: Simulation) -> list[tuple[str, int, int]]:
    return [(body.label, body.global_step, body.version) for body in bodies(simulation, EvaluationRecord)]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (0, [("before", 0, 0), ("after", 5, 5)]),
        (1, [("before", 0, 0), *(("during", at, at) for at in range(1, 5)), ("after", 5, 5)]),
        (2, [("before", 0, 0), ("during", 2, 2), ("during", 4, 4), ("after", 5, 5)]),
        (5, [("before", 0, 0), ("after", 5, 5)]),
    ],
)
@pytest.mark.parametrize("cluster", [(2, 0), (0, 0), (1, 2)], ids=["colocated scoring", "one process", "dedicated"])
def test_labels(every: int, expected: list[tuple[str, int, int]], cluster: tuple[int, int]) -> None:
    spec = job(
        num_global_steps=5,
        evaluation=evaluation(2, every=every),
        generators=None if cluster[0] else (),
        scoring="dedicated" if cluster[1] else "colocated",
        checkpoint_every=0,
    )
    simulation = finished(spec, *cluster)
    assert labels(simulation) == expected
    audit(simulation, spec)


def test_two_updates_a_rollout_are_evaluated_between_rollouts() -> None:
    spec = job(num_global_steps=4, updates_per_rollout=2, evaluation=evaluation(1, every=1))
    assert labels(finished(spec)) == [("before", 0, 0), ("during", 2, 2), ("after", 4, 4)]


def test_none_where_it_is_switched_off() -> None:
    assert labels(finished(job())) == []


def test_it_is_a_pause_with_a_name_and_never_a_bubble() -> None:
    spec = job(num_global_steps=2, evaluation=evaluation(4, every=1))
    simulation = finished(spec, 2, times=SLOW)
    check_seconds(simulation, spec, list(simulation.shells))
    tasks = [body for body in bodies(simulation, TaskRecord) if body.start_ns < body.end_ns]
    pauses = [
        (body.start_ns, body.end_ns) for body in tasks if body.task in ("evaluate", "evaluate_score") and body.start_ns
    ]
    for body in tasks:
        if body.task in ("generate", "score", "update", "commit", "assist"):
            assert all(body.end_ns <= start or end <= body.start_ns for start, end in pauses), "training goes on"
    named = [body for body in bodies(simulation, IdleRecord) if body.cause.startswith("evaluation")]
    assert {body.cause for body in named} <= {"evaluation before", "evaluation during", "evaluation after"}
    assert not any(body.bubble for body in named)


def test_fixed_seeds_and_deterministic_timesteps() -> None:
    """Neither the job's seed nor the version moves a seed; nothing is kept for training."""

    def asked(spec: JobSpec) -> set[tuple[str, int, int]]:
        simulation = finished(spec)
        tasks = [order.task for order in sent(simulation, GenerateTask)]
        evaluated = [task for task in tasks if isinstance(task, GenerateTask) and task.purpose == "evaluate"]
        for task in evaluated:
            for group in task.groups:
                assert set(group.levels) == {0.0}
                assert all(sample.timesteps == () for sample in group.samples)
        return {
            (group.prompt, sample.index, sample.initial_seed)
            for task in evaluated
            for group in task.groups
            for sample in group.samples
        }

    spec = job(evaluation=evaluation(3, every=1))
    first = asked(spec)
    assert len(first) == 3 * 2
    assert asked(replace(spec, seed=99)) == first
    assert asked(replace(spec, evaluation=evaluation(3, every=1, seed=7))) != first


def test_numbers_of_samples() -> None:
    spec = job(num_global_steps=2, evaluation=evaluation(3, every=1, samples=4, during_samples=2))
    assert [body.num_samples for body in bodies(finished(spec), EvaluationRecord)] == [12, 6, 12]


def test_means_leave_out_what_failed() -> None:
    def scorer(sample: Sample) -> SampleScore:
        if sample.purpose == "evaluate" and sample.index == 0:
            return replace(honest(sample), reward=float("nan"), components={"reward": float("nan")})
        return replace(honest(sample), reward=0.25, components={"reward": 0.25, "other": 0.5})

    def tamper(shell: object, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(task, ScoreTask) and isinstance(result, ScoreResult) and task.purpose == "evaluate":
            return replace(result, group_metrics={task.items[0].prompt.uid: {"diversity": 3.0}})
        return result

    simulation = finished(job(num_global_steps=1, evaluation=evaluation(2)), scorer=scorer, tamper=tamper)
    for body in bodies(simulation, EvaluationRecord):
        assert body.metrics == {"reward": 0.25, "other": 0.5, "diversity": 3.0}
        assert [group.rewards for group in body.groups] == [(None, 0.25)] * 2
        assert all(isfinite(value) for value in body.metrics.values())


@pytest.mark.parametrize("victim", [GENERATOR, TRAINER])
def test_lost_in_the_middle(victim: str) -> None:
    """What was scored counts; only the rest is generated again, under the same version."""
    spec = job(num_global_steps=1, evaluation=evaluation(4))
    simulation = simulate(spec, 2, times=SLOW)
    simulation.at(3 * S, lambda: simulation.kill(victim, 2 * S))
    simulation.run()
    simulation.settle()
    assert labels(simulation) == [("before", 0, 0), ("after", 1, 1)]
    audit(simulation, spec)


def test_not_again_for_the_same_weights() -> None:
    """After a restart from the checkpoint of step 1, neither the base weights nor step 1's are evaluated again."""
    spec = job(num_global_steps=3, evaluation=evaluation(2, every=1), checkpoint_every=1)
    simulation = simulate(spec)
    simulation.run(until=lambda: len(labels(simulation)) == 2)
    simulation.at(simulation.now_ns + S, lambda: simulation.kill(TRAINER, S))
    simulation.run()
    simulation.settle()
    assert len(bodies(simulation, RestartRecord)) == 1
    assert labels(simulation) == [("before", 0, 0), ("during", 1, 1), ("during", 2, 2), ("after", 3, 3)]


def test_again_for_weights_that_were_made_again() -> None:
    """Step 1 is lost with the trainer and made again: other weights, another incarnation, another evaluation."""
    spec = job(num_global_steps=2, evaluation=evaluation(2, every=1), checkpoint_every=0)
    simulation = simulate(spec)
    simulation.run(until=lambda: len(labels(simulation)) == 2)
    simulation.kill(TRAINER, S)
    simulation.run()
    simulation.settle()
    assert labels(simulation) == [("before", 0, 0), ("during", 1, 1), ("during", 1, 1), ("after", 2, 2)]
    assert [body.incarnation for body in bodies(simulation, EvaluationRecord)] == [0, 0, 1, 1]
    audit(simulation, spec)


def test_pictures_stay_until_the_recorder_has_drawn_them() -> None:
    spec = job(num_global_steps=1, evaluation=evaluation(3))
    simulation = simulate(spec, persist_ns=None)
    simulation.run()
    simulation.settle()
    assert last_state(simulation)[0] == "completed"
    drawn = {group.blob.id for body in bodies(simulation, EvaluationRecord) for group in body.groups}
    assert len(drawn) == 2 * 3
    assert set(simulation.world.left("j1")) == drawn
    first = next(record.seq for record in simulation.records["j1"] if isinstance(record.body, EvaluationRecord))
    simulation.persisted("j1", first)
    simulation.settle()
    assert set(simulation.world.left("j1")) == drawn, "the record itself is not written yet"
    simulation.persisted("j1", first + 1)
    simulation.settle()
    assert len(simulation.world.left("j1")) == 3
    simulation.persisted("j1")
    simulation.settle()
    audit(simulation, spec)


def test_many_prompts_draw_a_bounded_number_of_groups() -> None:
    spec = job(num_global_steps=1, evaluation=evaluation(70))
    simulation = finished(spec)
    assert [(len(body.groups), body.num_samples) for body in bodies(simulation, EvaluationRecord)] == [(64, 140)] * 2
    audit(simulation, spec)


def test_a_torpid_generator_does_not_hold_it() -> None:
    """Its prompt is generated again by others only once it is lost."""
    spec = job(num_global_steps=1, evaluation=evaluation(3), prompts=prompts(4))
    simulation = simulate(spec, 2, times=SLOW)
    simulation.at(S, lambda: simulation.freeze(GENERATOR, 100 * S))
    simulation.run()
    simulation.settle()
    assert worker_states(simulation, GENERATOR)[:2] == ["torpid", "lost"]
    audit(simulation, spec)
    assert [body.skipped for body in bodies(simulation, StepRecord)] == [None]
