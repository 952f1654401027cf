"""Drift of log-probs in the records: whose samples, at which timestep, of which origin; one warning a worker."""

from dataclasses import replace
from math import isclose

from broker.harness import Simulation
from broker.harness_engine import Slot
from digend.wire.records import DriftRecord, Notice, StepRecord
from digend.wire.tasks import ResultBody, SampleDrift, TaskBody, TaskError, TimestepDrift, UpdateResult, UpdateTask
from tests.broker.support import RULES, TIMES, bodies, finished, job

CLIP_RANGE = 1e-3
SPEC = job(rules=replace(RULES, clip_range=CLIP_RANGE), strategy="always", num_global_steps=2)


def off_by(amount: float, prompt: str):  # type: ignore[no-untyped-def]
    """A trainer whose log-probs of one prompt's samples are off by so much at timestep 1."""

    def tamper(shell: object, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if not isinstance(task, UpdateTask) or not isinstance(result, UpdateResult):
            return result
        samples, steps = [], dict[int, list[float]]()
        for item in task.items:
            values = [amount if (item.prompt, at) == (prompt, 1) else 0.0 for at in item.timesteps]
            samples.append(
                SampleDrift(
                    prompt=item.prompt,
                    index=item.index,
                    num_pairs=len(values),
                    sum=sum(values),
                    max=max(values),
                    whole=sum(values),
                )
            )
            for at, value in zip(item.timesteps, values, strict=True):
                steps.setdefault(at, []).append(value)
        timesteps = tuple(
            TimestepDrift(timestep=at, num_pairs=len(each), sum=sum(each), max=max(each))
            for at, each in sorted(steps.items())
        )
        return replace(result, sample_drift=tuple(samples), timestep_drift=timesteps, rejected=1)

    return tamper


def by(step: StepRecord, kind: str) -> dict[str, DriftRecord]:
    return {each.name: each for each in step.drift if each.by == kind}


def test_each_pair_counts_for_its_worker_timestep_and_origin() -> None:
    simulation = finished(SPEC, 2, tamper=off_by(0.5, "p1"))
    for step in bodies(simulation, StepRecord):
        for kind in ("worker", "timestep", "origin"):
            found = by(step, kind)
            assert sum(each.num_pairs for each in found.values()) == step.z
            assert max(each.max for each in found.values()) <= 0.5
        assert set(by(step, "origin")) <= {"generator", "TAG"}
        assert step.rejected_pairs == step.num_micro_batches
    first = bodies(simulation, StepRecord)[0]
    total = sum(each.mean * each.num_pairs for each in by(first, "worker").values())
    assert isclose(total, sum(each.mean * each.num_pairs for each in by(first, "timestep").values()))
    assert total > 0
    assert [name for name, each in by(first, "timestep").items() if each.max] == ["1"]
    assert first.sequence_drift_max == 0.5


def test_past_a_tenth_of_the_clip_range_each_worker_is_warned_of_once() -> None:
    warnings = [
        each.message
        for each in bodies(finished(SPEC, 2, tamper=off_by(1.1e-4, "p1")), Notice)
        if "|log ratio|" in each.message
    ]
    assert warnings
    workers = [message.split(":")[0] for message in warnings]
    assert len(set(workers)) == len(workers), "once for each"
    assert "up to 0.00011 before any update of global step" in warnings[0]
    assert "the timestep that is furthest off is 1" in warnings[0]
    for spec, amount in ((SPEC, 0.9e-4), (replace(SPEC, rules=RULES), 1.0)):
        quiet = bodies(finished(spec, 2, tamper=off_by(amount, "p1")), Notice)
        assert not [each for each in quiet if "|log ratio|" in each.message]


def test_past_what_the_number_type_allows_too() -> None:
    """The tighter of the two rules counts; without a clip range the number type's alone."""
    exact = replace(SPEC, ratio_rule=1e-6)
    for spec in (exact, replace(exact, rules=RULES)):
        warned = [
            each.message
            for each in bodies(finished(spec, 2, tamper=off_by(2e-6, "p1")), Notice)
            if "|log ratio|" in each.message
        ]
        assert warned
        assert "up to 2e-06 before any update" in warned[0]
        assert "more than the 1e-06 that the model's number type allows" in warned[0]
        quiet = bodies(finished(spec, 2, tamper=off_by(0.9e-6, "p1")), Notice)
        assert not [each for each in quiet if "|log ratio|" in each.message]
    loose = bodies(finished(replace(SPEC, ratio_rule=1.0), 2, tamper=off_by(1.1e-4, "p1")), Notice)
    assert any("0.1 of the clip range 0.001" in each.message for each in loose)


def test_samples_of_older_weights_may_differ() -> None:
    """The second optimizer step of a rollout is trained on weights that did not draw its samples."""
    spec = replace(SPEC, updates_per_rollout=2, num_global_steps=2, strategy="never")
    for prompt in spec.prompts:
        simulation = finished(spec, 2, tamper=off_by(1.0, prompt.uid))
        off = [step.global_step for step in bodies(simulation, StepRecord) if step.sequence_drift_max]
        warned = [each.message for each in bodies(simulation, Notice) if "|log ratio|" in each.message]
        assert bool(warned) == (off == [1])


def test_records_are_bounded() -> None:
    names = [Slot(name=f"n/generator/{index}", role="generator") for index in range(70)]
    simulation = Simulation(TIMES, [*names, Slot(name="n/trainer/0", role="trainer")], tamper=off_by(0.5, "p1"))
    simulation.submit(replace(SPEC, samples_per_prompt=40, num_global_steps=1, strategy="never"))
    simulation.run()
    (step,) = bodies(simulation, StepRecord)
    assert len(by(step, "worker")) == 64
    assert max(each.max for each in by(step, "worker").values()) == 0.5, "those that drifted most are kept"
