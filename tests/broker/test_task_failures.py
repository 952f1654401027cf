"""Tasks that fail, each with every reason: again, masked, or the end of the job in words; never silently."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.harness import Tamper
from broker.harness_engine import Sample, Scorer, honest
from broker.harness_shell import Shell
from clients.story import line_of
from digend.telemetry.figures import figures
from digend.telemetry.summary import summarise
from digend.wire.records import EvaluationRecord, JobState, Notice, RestartRecord, StepRecord, TaskFailure, WorkerState
from digend.wire.refs import WeightsRef
from digend.wire.tasks import (
    TASK_ERRORS,
    CommitResult,
    GenerateResult,
    PrepareResult,
    ResetResult,
    ResultBody,
    SampleScore,
    ScoreResult,
    TaskBody,
    TaskError,
)
from tests.broker.audit import audit, check_seconds, steps_of
from tests.broker.support import GENERATOR, S, bodies, evaluation, finished, job, last_state, simulate

KINDS = ("prepare", "encode", "generate", "score", "update", "commit", "checkpoint")
FATAL = ("weights", "model", "config")


def once(kind: str, error: TaskError) -> Tamper:
    """The first task of a kind fails."""
    left = [error]

    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        return left.pop() if task.kind == kind and left else result

    return tamper


def always(kind: str, error: TaskError) -> Tamper:
    return lambda shell, task, result: error if task.kind == kind else result


@pytest.mark.parametrize("kind", ["prepare", "update"])
def test_ranks_that_were_lost_are_no_fault_of_a_job_that_has_none(kind: str) -> None:
    """Whatever the error says of a retry: another job's ranks were in the way, and will be gone."""
    spec = job(num_global_steps=1)
    error = TaskError(reason="rank_lost", message="none of a trainer's ranks", retry=False)
    simulation = finished(spec, 2, 2, tamper=once(kind, error))
    assert last_state(simulation) == ("completed", "")
    assert [failure.reason for failure in bodies(simulation, TaskFailure)] == ["rank_lost"]
    audit(simulation, spec)


@pytest.mark.parametrize("reason", [reason for reason in TASK_ERRORS if reason not in FATAL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_fails_once_is_done_again(kind: str, reason: str) -> None:
    spec = job(num_global_steps=1, scoring="dedicated")
    error = TaskError(reason=reason, message="arranged", retry=True)
    simulation = finished(spec, 2, 2, tamper=once(kind, error))
    assert last_state(simulation) == ("completed", "")
    failures = bodies(simulation, TaskFailure)
    assert [(failure.task, failure.reason, failure.message) for failure in failures] == [(kind, reason, "arranged")]
    audit(simulation, spec)
    check_seconds(simulation, spec, list(simulation.shells))


@pytest.mark.parametrize("reason", FATAL)
@pytest.mark.parametrize("kind", KINDS)
def test_what_no_other_try_can_mend_ends_the_job(kind: str, reason: str) -> None:
    spec = job(num_global_steps=1)
    error = TaskError(reason=reason, message="transformer/x.weight has another shape", retry=False)
    simulation = finished(spec, 2, tamper=once(kind, error))
    state, why = last_state(simulation)
    assert state == "failed"
    assert kind in why
    assert "transformer/x.weight has another shape" in why
    audit(simulation, spec, masked=True)


def test_whoever_watches_reads_a_failure_once_before_the_end() -> None:
    """With the line that says how the job ended, which `digenctl watch` makes of its view."""
    error = TaskError(reason="model", message="the model is not there", retry=False)
    simulation = finished(job(), tamper=once("prepare", error))
    lines = [line for record in simulation.records["j1"] if (line := line_of(record.body))]
    assert len([line for line in lines if "the model is not there" in line]) == 1
    assert last_state(simulation)[1].endswith("the model is not there")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "score"])
def test_tries_are_counted(kind: str) -> None:
    spec = job(num_global_steps=1, task_retries=2)
    error = TaskError(reason="out_of_memory", message="no memory left", retry=True)
    simulation = finished(spec, 1, tamper=always(kind, error))
    state, why = last_state(simulation)
    assert state == "failed"
    assert "no memory left" in why
    tries = Counter(failure.worker for failure in bodies(simulation, TaskFailure) if failure.task == kind)
    assert 3 <= max(tries.values()) <= 4
    audit(simulation, spec)


def test_an_update_that_is_not_finite_ends_the_job_with_the_tensor_named() -> None:
    error = TaskError(reason="non_finite", message="loss of sample p0/1 at timestep 2 is not finite", retry=False)
    state, why = last_state(finished(job(), tamper=once("update", error)))
    assert state == "failed"
    assert "p0/1 at timestep 2" in why


def test_a_gradient_that_is_not_finite_skips_the_step() -> None:
    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(result, CommitResult) and task.kind == "commit" and task.global_step == 0:
            shell.engine.drop(result)
            return replace(result, weights=None, skipped="the gradient of transformer/x is not finite")
        return result

    spec = job(num_global_steps=2)
    simulation = finished(spec, tamper=tamper)
    assert [(step.version, step.skipped) for step in bodies(simulation, StepRecord)] == [
        (0, "the gradient of transformer/x is not finite"),
        (1, None),
    ]
    assert last_state(simulation) == ("completed", "1 of 2 global steps trained")


def _down(sample: Sample) -> SampleScore:
    return SampleScore(prompt=sample.prompt, index=sample.index, reward=None, components={}, failure="raised: down")


def test_where_nothing_was_scored_there_is_no_mean() -> None:
    """Not in the record, nor under any name that is a mean of samples; the view keeps the last one that there was."""
    simulation = finished(
        job(num_global_steps=2), scorer=lambda sample: honest(sample) if sample.rollout == 0 else _down(sample)
    )
    scored, skipped = bodies(simulation, StepRecord)
    assert (skipped.reward_mean, skipped.reward_std, skipped.components) == (None, None, {})
    names = set(figures(skipped))
    assert not [name for name in names if name.startswith(("reward/", "advantage/", "train/loss", "train/ratio"))]
    assert {"train/planned_pairs", "train/pairs", "samples/masked"} <= names
    assert "global step 2, reward -, " in (line_of(skipped) or "")
    assert simulation.job("j1").reward_mean == scored.reward_mean
    assert summarise(simulation.records["j1"]).job.reward == scored.reward_mean


@pytest.mark.parametrize("failing", [2, 1], ids=["all", "one of each prompt"])
def test_an_evaluation_says_how_many_samples_failed(failing: int) -> None:
    def scorer(sample: Sample) -> SampleScore:
        return _down(sample) if sample.purpose == "evaluate" and sample.index < failing else honest(sample)

    simulation = finished(job(num_global_steps=1, evaluation=evaluation(2)), scorer=scorer)
    before = bodies(simulation, EvaluationRecord)[0]
    assert (before.num_failed, before.num_samples) == (2 * failing, 4)
    none = "no reward: " if failing == 2 else ""
    said = [body.message for body in bodies(simulation, Notice) if body.level == "warning"]
    assert said[0] == f"evaluation before at global step 0: {none}{2 * failing} of 4 samples failed: raised: down"
    line = line_of(before) or ""
    assert line.startswith(f"evaluation before (global step 0): {'no reward' if failing == 2 else 'reward 0.'}")
    assert line.endswith(f", {2 * failing} of 4 samples failed")
    assert last_state(simulation) == ("completed", "")


def test_where_no_gradient_of_a_job_was_finite_it_fails() -> None:
    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(result, CommitResult):
            shell.engine.drop(result)
            return replace(result, weights=None, skipped="the gradient of transformer/x is not finite")
        return result

    simulation = finished(job(num_global_steps=1), tamper=tamper)
    why = "no global step trained: the gradient of transformer/x is not finite"
    assert last_state(simulation) == ("failed", why)


def test_gradients_that_never_agree_end_the_job() -> None:
    """A commit is refused for what was applied: reset and train again, but not for ever."""
    error = TaskError(reason="applied", message="(0,) is applied, (0, 1) was asked for", retry=False)
    spec = job(num_global_steps=1, task_retries=2)
    simulation = finished(spec, tamper=always("commit", error))
    state, why = last_state(simulation)
    assert state == "failed"
    assert "(0,) is applied" in why
    assert simulation.job("j1").counters["resets"] == 2
    audit(simulation, spec)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda result: ResetResult(),
        lambda result: replace(result, trajectory=None),
        lambda result: replace(result, num_samples=result.num_samples - 1),
    ],
    ids=["another kind", "no trajectories", "too few samples"],
)
def test_a_result_of_the_wrong_form_is_a_failure(wrong: Callable[[GenerateResult], ResultBody]) -> None:
    left = [wrong]

    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(result, GenerateResult) and left:
            shell.engine.drop(result)
            return left.pop()(result)
        return result

    simulation = finished(job(num_global_steps=1), tamper=tamper)
    assert last_state(simulation) == ("completed", "")
    (failure,) = bodies(simulation, TaskFailure)
    assert failure.task == "generate"


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("prepare", lambda result: replace(result, weights=replace(result.weights, version=3))),
        ("prepare", lambda result: replace(result, weights=replace(result.weights, incarnation=2))),
        ("commit", lambda result: replace(result, weights=replace(result.weights, version=9))),
        ("commit", lambda result: replace(result, weights=replace(result.weights, job="other"))),
        ("encode", lambda result: replace(result, conditions={})),
    ],
)
def test_what_was_not_asked_for_is_a_failure_and_not_waited_for(kind: str, spoil: Callable[[Any], ResultBody]) -> None:
    left = [spoil]

    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        published = getattr(result, "weights", None) is not None or kind == "encode"
        if task.kind == kind and published and left:
            shell.engine.drop(result)
            return left.pop()(result)
        return result

    simulation = finished(job(num_global_steps=2), tamper=tamper)
    state, why = last_state(simulation)
    assert (state, bool(why)) == (("failed", True) if kind == "commit" else ("completed", False))
    assert kind in [failure.task for failure in bodies(simulation, TaskFailure)]


# ---------------------------------------------------------------------------------------------------- rewards


def failing(reward: float | None, failure: str | None, attempts: int) -> Scorer:
    """Sample p0/0 has no usable reward in the first `attempts` tries."""

    def scorer(sample: Sample) -> SampleScore:
        score = honest(sample)
        if (sample.prompt, sample.index) == ("p0", 0) and sample.attempt < attempts:
            return replace(score, reward=reward, failure=failure)
        return score

    return scorer


@pytest.mark.parametrize(
    ("reward", "failure"),
    [(None, "raised"), (float("nan"), None), (float("inf"), None), (1e308, None), (None, None), (0.5, "late")],
)
def test_a_reward_that_fails_is_tried_again_then_masked_and_never_a_number(
    reward: float | None, failure: str | None
) -> None:
    spec = job(num_global_steps=1, reward_retries=2)
    mended = finished(spec, 1, scorer=failing(reward, failure, 2))
    audit(mended, spec)
    masked = finished(spec, 1, scorer=failing(reward, failure, 3))
    audit(masked, spec, masked=True)
    (step,) = steps_of(masked, spec)
    assert not [pair for pair in step.pairs if (pair.prompt, pair.index) == ("p0", 0)]
    assert (step.z0, step.z) == (32, 30)
    (record,) = bodies(masked, StepRecord)
    assert record.num_masked == 1
    assert 0 <= record.reward_mean <= 1
    assert any("p0/0" in notice.message for notice in bodies(masked, Notice))


def test_scores_that_are_missing_or_too_many() -> None:
    """A reward of the wrong length: what is there counts, what is missing is asked for again, the rest is ignored."""

    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(result, ScoreResult):
            alien = SampleScore(prompt="p99", index=0, reward=9.0, components={})
            return replace(result, scores=(*result.scores[:1], alien))
        return result

    spec = job(num_global_steps=1, reward_retries=5)
    simulation = finished(spec, 1, tamper=tamper)
    audit(simulation, spec)
    assert bodies(simulation, StepRecord)[0].reward_mean < 1


# ---------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("version", [0, 1])
def test_one_tensor_that_does_not_bind_fails_the_job(version: int) -> None:
    def staged(shell: Shell, weights: WeightsRef) -> int | TaskError:
        return 4 if weights.version == version else 5

    spec = job(num_global_steps=2)
    simulation = finished(spec, 1, stage_tamper=staged)
    assert last_state(simulation) == ("failed", f"{GENERATOR} bound 4 of 5 tensors of version {version}")
    audit(simulation, spec)


def test_weights_that_do_not_fit_fail_the_job() -> None:
    error = TaskError(reason="weights", message="4 of 5 tensors bind", retry=False)
    state, why = last_state(finished(job(), 1, stage_tamper=lambda shell, weights: error))
    assert (state, why) == ("failed", f"{GENERATOR}, version 0: 4 of 5 tensors bind")


def test_a_generator_that_cannot_stage_is_left_out() -> None:
    """The others go on; one that can stage again is back in."""
    error = TaskError(reason="internal", message="no host memory", retry=True)

    def staged(shell: Shell, weights: WeightsRef) -> int | TaskError:
        broken = shell.name == GENERATOR and weights.version == 1 and shell.host.now_ns < 60 * S
        return error if broken else 5

    spec = job(num_global_steps=3, evaluation=evaluation(1))
    simulation = finished(spec, 2, stage_tamper=staged)
    assert last_state(simulation) == ("completed", "")
    audit(simulation, spec)


def test_a_trainer_that_is_gone_is_not_blamed_on_who_stages() -> None:
    """Weights that cannot be pulled are their owner's fault: no generator is lost, the trainer is."""
    simulation = simulate(job())
    simulation.run(until=lambda: len(simulation.batches) == 2)
    simulation.kill("n/trainer/0", 60 * S, noticed=False)
    simulation.run(limit_ns=1000 * S)
    lost = [body.worker for body in bodies(simulation, WorkerState) if body.state == "lost"]
    assert lost == ["n/trainer/0"]
    assert len(bodies(simulation, RestartRecord)) == 1


def test_unlike_base_weights_are_refused_with_both_named() -> None:
    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if isinstance(result, PrepareResult) and shell.name == GENERATOR:
            return replace(result, base_digest="another")
        return result

    state, why = last_state(finished(job(), 1, tamper=tamper))
    assert state == "failed"
    assert "another" in why
    assert "base" in why


def test_the_commit_of_a_hub_model_is_recorded_once() -> None:
    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        return replace(result, commit="c" * 40) if isinstance(result, PrepareResult) else result

    simulation = finished(job(), 2, tamper=tamper)
    assert last_state(simulation) == ("completed", "")
    told = [body.details for body in bodies(simulation, Notice) if "of the hub" in body.message]
    assert told == [{"commit": "c" * 40}]


def test_a_checkpoint_without_room_holds_the_job_until_there_is_some() -> None:
    spec = job(num_global_steps=3, task_retries=1)
    full = TaskError(reason="checkpoint", message="No space left on device", retry=True)
    left = [full] * 6

    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        return left.pop() if task.kind == "checkpoint" and left else result

    simulation = finished(spec, tamper=tamper)
    assert last_state(simulation) == ("completed", "")
    states = [(body.state, body.reason) for body in bodies(simulation, JobState)]
    assert states[2:] == [("running", ""), ("held", full.message), ("running", ""), ("completed", "")]
    audit(simulation, spec)
    check_seconds(simulation, spec, list(simulation.shells))


def test_processes_that_start_from_unlike_adapters_fail_the_job() -> None:
    def tamper(shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if not isinstance(result, PrepareResult):
            return result
        return replace(result, adapter_digest="aaaa" if shell.engine.slot.role == "trainer" else "bbbb")

    state, reason = last_state(finished(job(), 2, tamper=tamper))
    assert state == "failed"
    assert "aaaa" in reason
    assert "bbbb" in reason
