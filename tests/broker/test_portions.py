"""A TAG result is scored by the whole pool: cut by speed, each sample once, tried again and lost portion by portion."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from broker.harness import Simulation
from broker.harness_engine import Sample, Slot, honest
from broker.microbatch import MicroBatch
from broker.spec import JobSpec
from digend.wire.records import StepRecord, TaskRecord
from digend.wire.tasks import SampleScore, ScoreTask
from tests.broker.audit import audit, steps_of
from tests.broker.support import GENERATOR, MS, TIMES, TRAINER, S, bodies, finished, job, simulate
from tests.broker.test_global_step import sent

SLOW = replace(TIMES, score=600 * MS)


def helped(**changes: object) -> JobSpec:
    """One TAG a global step, no checkpoints."""
    return job(strategy="static:1", checkpoint_every=0, samples_per_prompt=8, **changes)


def scores_of_assisted(simulation: Simulation, global_step: int) -> list[TaskRecord]:
    """The score tasks of what the trainer generated for a global step (counted from 0)."""
    records = [body for body in bodies(simulation, TaskRecord) if body.global_step == global_step]
    (made,) = (body.micro_batch for body in records if body.task == "assist")
    return [body for body in records if body.task == "score" and body.micro_batch == made]


def test_all_generators_score_it_at_once_each_by_its_speed() -> None:
    slots = [
        Slot(name="n/generator/0", role="generator"),
        Slot(name="n/generator/1", role="generator", speed=Fraction(3)),
        Slot(name=TRAINER, role="trainer"),
    ]
    simulation = Simulation(SLOW, slots)
    simulation.submit(helped(num_global_steps=4))
    simulation.run()
    scored = scores_of_assisted(simulation, 3)
    assert {body.worker: body.num_samples for body in scored} == {"n/generator/0": 2, "n/generator/1": 6}
    assert len({(body.start_ns, body.end_ns) for body in scored}) == 1
    assert {body.end_ns - body.start_ns for body in scored} == {SLOW.score}


def test_whoever_is_free_takes_what_was_cut_for_one_that_is_not() -> None:
    """Fewer samples than generators, and one of them killed as the others begin."""
    simulation = simulate(helped(num_global_steps=1), 3, times=SLOW)
    simulation.run(
        until=lambda: any(batch.assisted and batch.fragments[0].being_scored for batch in rollout(simulation))
    )
    simulation.kill(GENERATOR)
    simulation.run()
    simulation.settle()
    audit(simulation, helped(num_global_steps=1))
    scored = scores_of_assisted(simulation, 0)
    assert sum(body.num_samples for body in scored) == 8
    assert len(scored) == 3
    assert GENERATOR not in {body.worker for body in scored}


def rollout(simulation: Simulation) -> list[MicroBatch]:
    found = simulation.core.state.jobs.get("j1")
    return list(found.rollout) if found else []


def test_a_sample_is_tried_again_as_often_as_the_job_says_whatever_becomes_of_the_others() -> None:
    asked: Counter[tuple[str, int]] = Counter()

    def scorer(sample: Sample) -> SampleScore:
        asked[sample.prompt, sample.index] += 1
        score = honest(sample)
        return replace(score, reward=None, failure="down") if sample.index in (0, 7) else score

    spec = helped(num_global_steps=1, reward_retries=2)
    simulation = finished(spec, 2, times=SLOW, scorer=scorer)
    audit(simulation, spec, masked=True)
    assert Counter(asked.values()) == {1: 4 * 6, 3: 4 * 2}
    (record,) = bodies(simulation, StepRecord)
    assert record.num_masked == 8
    (step,) = steps_of(simulation, spec)
    assert {pair.index for pair in step.pairs} == {1, 2, 3, 4, 5, 6}


def test_a_portion_whose_samples_are_lost_takes_the_others_with_it() -> None:
    """The trainer holds them: killed while two score, both end, and what was scored is scored again of new samples."""
    spec = helped(num_global_steps=1)
    simulation = simulate(spec, 2, times=SLOW)
    simulation.run(
        until=lambda: any(batch.assisted and batch.fragments[0].being_scored for batch in rollout(simulation))
    )
    before = len(sent(simulation, ScoreTask))
    simulation.kill(TRAINER, 2 * S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    assert len(sent(simulation, ScoreTask)) > before


def test_reward_processes_take_it_whole() -> None:
    spec = helped(num_global_steps=1, scoring="dedicated")
    simulation = finished(spec, 2, 2, times=SLOW)
    audit(simulation, spec)
    assert [body.num_samples for body in scores_of_assisted(simulation, 0)] == [8]


def test_reward_processes_share_what_one_generator_made() -> None:
    """Two samples a task: three processes score eight samples in the time of four, each sample once."""
    spec = job(num_global_steps=1, checkpoint_every=0, samples_per_prompt=8, scoring="dedicated", score_samples=2)
    simulation = finished(spec, 1, 3, times=SLOW)
    audit(simulation, spec)
    scored = [body for body in bodies(simulation, TaskRecord) if body.task == "score"]
    assert [body.num_samples for body in scored] == [2] * 16
    first = [body for body in scored if body.micro_batch == 0]
    assert len({body.worker for body in first}) == 3
    assert sum(body.start_ns == first[0].start_ns for body in first) == 3


def test_a_portion_that_fails_is_tried_again_alone() -> None:
    asked: Counter[tuple[str, int]] = Counter()

    def scorer(sample: Sample) -> SampleScore:
        asked[sample.prompt, sample.index] += 1
        score = honest(sample)
        return replace(score, reward=None, failure="down") if sample.index == 3 else score

    spec = job(num_global_steps=1, checkpoint_every=0, scoring="dedicated", score_samples=2, reward_retries=2)
    simulation = finished(spec, 1, 2, times=SLOW, scorer=scorer)
    audit(simulation, spec, masked=True)
    assert Counter(asked.values()) == {1: 4 * 3, 3: 4}


def test_a_reward_process_that_dies_loses_its_portion_only() -> None:
    spec = job(num_global_steps=1, checkpoint_every=0, samples_per_prompt=8, scoring="dedicated", score_samples=2)
    simulation = simulate(spec, 1, 2, times=SLOW)
    simulation.run(until=lambda: any(batch.fragments and batch.fragments[0].scores for batch in rollout(simulation)))
    simulation.kill("n/reward/0", 2 * S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    scored = [body for body in bodies(simulation, TaskRecord) if body.task == "score"]
    assert sum(body.num_samples for body in scored) == 4 * 8
