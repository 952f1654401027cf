"""Pause, resume, and the three ways to cancel: at many instants, with nothing left behind and nothing done twice."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.commands import SendTask
from broker.events import CancelRequested, PauseRequested, Request, ResumeRequested
from broker.harness import Simulation
from broker.microbatch import Phase
from broker.spec import JobSpec
from broker.views import job_view
from digend.wire.records import CheckpointRecord, EvaluationRecord, JobState, Notice, StepRecord, TaskRecord
from tests.broker.audit import audit, check_leftovers, states_of, steps_of
from tests.broker.support import (
    MS,
    TIMES,
    TRAINER,
    S,
    bodies,
    evaluation,
    finished,
    job,
    last_state,
    simulate,
)

PAUSE = PauseRequested(job="j1", by="ann", why="lunch")
RESUME = ResumeRequested(job="j1")

SMALL: dict[str, JobSpec] = {
    "gap": job(num_global_steps=3, prompts_per_rollout=2, checkpoint_every=0, evaluation=evaluation(2, every=1)),
    "two updates": job(num_global_steps=4, updates_per_rollout=2, prompts_per_rollout=2, checkpoint_every=0),
    "stale": job(num_global_steps=3, prompts_per_rollout=2, staleness=0.5, strategy="always"),
    "dedicated": job(num_global_steps=2, prompts_per_rollout=2, scoring="dedicated"),
    "colocated": job(num_global_steps=2, prompts_per_rollout=2, generators=(), evaluation=evaluation(1)),
}


def made(spec: JobSpec) -> Simulation:
    return simulate(spec, 0 if spec.generators == () else 2, 1 if spec.scoring == "dedicated" else 0)


STRIDE = 4
"""Every so many batches of the undisturbed run; 1 passes too, and takes so much longer."""


def asked_at_many_instants(spec: JobSpec, request: Request) -> list[Simulation]:
    """One run for each instant, the request before it; run until nothing more happens."""
    undisturbed = made(spec)
    undisturbed.run()
    runs = []
    for at in range(1, len(undisturbed.batches), STRIDE):
        simulation = made(spec)
        for _ in range(at):
            simulation.step()
        simulation.ask(request)
        simulation.run(until=lambda simulation=simulation: not simulation.job("j1").active, limit_ns=1000 * S)  # type: ignore[misc]
        simulation.settle()
        runs.append(simulation)
    return runs


def trained(simulation: Simulation, spec: JobSpec) -> list[tuple[int, str, tuple[int, ...]]]:
    """Each optimizer step: which, from which ancestor policies, on which micro-batches."""
    return [(step.global_step, step.policy, step.micro_batches) for step in steps_of(simulation, spec)]


@pytest.mark.parametrize("name", list(SMALL))
def test_paused_at_many_instants_and_resumed(name: str) -> None:
    spec = SMALL[name]
    undisturbed = made(spec)
    undisturbed.run()
    for simulation in asked_at_many_instants(spec, PAUSE):
        state, reason = last_state(simulation)
        if state == "completed":
            continue  # it was over before its next border
        assert (state, reason) == ("paused", "paused by ann: lunch")
        found = simulation.job("j1")
        assert found.checkpoint_at == (found.global_step, found.version)
        assert found.global_step % spec.updates_per_rollout == 0
        assert not simulation.core.state.leases
        assert not any(shell.engine.loaded for shell in simulation.shells.values())
        simulation.ask(RESUME)
        simulation.run(limit_ns=1000 * S)
        simulation.settle()
        assert last_state(simulation) == ("completed", "")
        audit(simulation, spec)
        check_leftovers(simulation)
        steps = [body.global_step for body in bodies(simulation, StepRecord)]
        assert steps == list(range(1, spec.num_global_steps + 1)), "no global step is lost or made twice"
        if name != "stale":
            assert sorted(trained(simulation, spec)) == sorted(trained(undisturbed, spec))
        labels = [(body.label, body.global_step) for body in bodies(simulation, EvaluationRecord)]
        assert labels == [(body.label, body.global_step) for body in bodies(undisturbed, EvaluationRecord)]


def test_while_one_job_is_paused_the_next_runs() -> None:
    spec = job(num_global_steps=3)
    simulation = simulate(spec)
    simulation.submit(job(id="j2", num_global_steps=1))
    simulation.at(2 * S, lambda: simulation.ask(PAUSE))
    simulation.run(until=lambda: "j2" in simulation.core.state.jobs and not simulation.job("j2").open)
    assert last_state(simulation)[0] == "paused"
    simulation.ask(RESUME)
    simulation.run()
    simulation.settle()
    assert last_state(simulation) == ("completed", "")
    run = ["queued", "preparing", "running"]
    assert states_of(simulation) == [*run, "paused", *run, "completed"]
    audit(simulation, spec)


def test_the_view_says_when_it_pauses_and_a_pause_is_taken_back() -> None:
    simulation = simulate(job(num_global_steps=2))
    simulation.run(until=lambda: simulation.now_ns > 2 * S)
    simulation.ask(PAUSE)
    simulation.step()
    view = job_view(simulation.core.state, simulation.job("j1"))
    assert (view.state, view.reason) == ("running", "pauses after global step 1 of 2 by ann: lunch")
    simulation.ask(RESUME)
    simulation.run()
    assert "paused" not in states_of(simulation)
    said = [body.message for body in bodies(simulation, Notice)]
    assert said == ["the job pauses after global step 1 of 2 by ann: lunch", "the job goes on without a pause"]


def test_a_second_pause_adds_its_reason_and_one_without_changes_nothing() -> None:
    simulation = simulate(job(num_global_steps=2))
    simulation.at(2 * S, lambda: simulation.ask(PAUSE))
    simulation.at(2 * S + 1, lambda: simulation.ask(PauseRequested(job="j1", by="bob", why="")))
    simulation.at(2 * S + 2, lambda: simulation.ask(PauseRequested(job="j1", by="bob", why="new disks")))
    simulation.run(until=lambda: "j1" in simulation.core.state.jobs and simulation.job("j1").state == "paused")
    assert last_state(simulation) == ("paused", "paused by ann: lunch; bob: new disks")
    for by, why in (("eve", "audit"), ("bob", "new disks"), ("ann", "lunch"), ("ann", "")):
        simulation.ask(PauseRequested(job="j1", by=by, why=why))
    end_ns = simulation.now_ns + S
    simulation.run(until=lambda: simulation.now_ns > end_ns)
    assert last_state(simulation) == ("paused", "paused by ann: lunch; bob: new disks; eve: audit")
    simulation.ask(RESUME)
    simulation.run()
    assert last_state(simulation) == ("completed", "")


def test_a_queued_job_is_paused_at_once_and_does_not_start() -> None:
    simulation = simulate(job(num_global_steps=1))
    simulation.submit(job(id="j2"))
    simulation.ask(PauseRequested(job="j2"))
    simulation.run(until=lambda: "j1" in simulation.core.state.jobs and not simulation.job("j1").open)
    simulation.run(until=lambda: simulation.now_ns > 100 * S)
    assert last_state(simulation, "j2") == ("paused", "paused")
    simulation.ask(ResumeRequested(job="j2"))
    simulation.run()
    assert last_state(simulation, "j2") == ("completed", "")


def test_paused_outlives_restarts_of_the_driver() -> None:
    spec = job(num_global_steps=2)
    simulation = simulate(spec)
    simulation.at(2 * S, lambda: simulation.ask(PAUSE))
    simulation.run(until=lambda: "j1" in simulation.core.state.jobs and simulation.job("j1").state == "paused")
    simulation.restart_driver()
    end_ns = simulation.now_ns + 60 * S
    simulation.run(until=lambda: simulation.now_ns > end_ns and simulation.driver_up)
    assert last_state(simulation) == ("paused", "paused by ann: lunch")
    simulation.ask(RESUME)
    simulation.run()
    simulation.settle()
    audit(simulation, spec, retold=True)
    assert last_state(simulation) == ("completed", "")


def test_a_trainer_that_dies_before_the_border_pauses_at_the_checkpoint() -> None:
    spec = job(num_global_steps=3, checkpoint_every=1)
    simulation = simulate(spec)
    simulation.run(until=lambda: bool(bodies(simulation, CheckpointRecord)))
    simulation.ask(PAUSE)
    simulation.step()
    simulation.kill(TRAINER, 5 * S)
    simulation.run(until=lambda: simulation.job("j1").state == "paused")
    assert simulation.job("j1").global_step == 1
    simulation.ask(RESUME)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)


@pytest.mark.parametrize("name", list(SMALL))
def test_cancelled_after_a_global_step_at_many_instants(name: str) -> None:
    """The open global step is finished, and there is a checkpoint of it."""
    spec = SMALL[name]
    for simulation in asked_at_many_instants(spec, CancelRequested(job="j1", after="global-step", by="ann")):
        state, reason = last_state(simulation)
        found = simulation.job("j1")
        if state == "completed":
            continue
        assert (state, reason.split(" by ann")[0]) in (
            ("cancelled", f"after global step {found.global_step}"),
            ("cancelled", ""),
        ), reason
        assert found.checkpoint_at == (found.global_step, found.version)
        audit(simulation, spec)


def test_cancelled_after_running_tasks_at_many_instants() -> None:
    """No lease is revoked and none is granted any more."""
    spec = SMALL["gap"]
    for simulation in asked_at_many_instants(spec, CancelRequested(job="j1", after="micro-batch")):
        state, reason = last_state(simulation)
        assert state in ("cancelled", "completed")
        assert reason in ("by request, after its running tasks", "by request", "")
        audit(simulation, spec)
        tasks = [body for body in bodies(simulation, TaskRecord)]
        granted = [each for batch in simulation.batches for each in batch.commands if isinstance(each, SendTask)]
        assert len(tasks) == len(granted)


def test_the_newest_word_about_a_cancel_holds() -> None:
    simulation = simulate(job(num_global_steps=3))
    simulation.run(until=lambda: simulation.now_ns > 2 * S)
    simulation.ask(CancelRequested(job="j1", after="global-step"))
    simulation.step()
    simulation.ask(PAUSE)
    simulation.step()
    reason = job_view(simulation.core.state, simulation.job("j1")).reason
    assert reason == "is cancelled after global step 1 of 3", "a job that is being cancelled is not paused"
    simulation.ask(CancelRequested(job="j1"))
    simulation.step()
    assert last_state(simulation) == ("cancelled", "by request")


@pytest.mark.parametrize("what", ["pause", "resume", "priority"])
def test_requests_for_jobs_that_are_over_change_nothing(what: str) -> None:
    simulation = finished(job(num_global_steps=1))
    records = len(simulation.records["j1"])
    asked: dict[str, Callable[[], Request]] = {
        "pause": lambda: PAUSE,
        "resume": lambda: RESUME,
        "priority": lambda: PauseRequested(job="unknown"),
    }
    simulation.ask(asked[what]())
    simulation.settle()
    assert len(simulation.records["j1"]) == records
    assert bodies(simulation, JobState)[-1].state == "completed"


@pytest.mark.parametrize("request_", [PAUSE, CancelRequested(job="j1", after="global-step")])
def test_a_global_step_that_has_begun_while_an_evaluation_goes_on_ends_first(request_: Request) -> None:
    """With staleness its samples may be there already; a checkpoint in the middle of it would lose what was trained."""
    spec = job(
        num_global_steps=3, staleness=1.0, strategy="always", evaluation=evaluation(4, every=1), checkpoint_every=0
    )
    simulation = simulate(spec, 1, times=replace(TIMES, update=100 * MS, evaluate=5 * S))

    def has_begun() -> bool:
        found = simulation.core.state.jobs.get("j1")
        batches = found.step_batches() if found is not None and found.evaluation is not None else []
        return any(batch.phase is Phase.APPLIED for batch in batches)

    simulation.run(until=has_begun)
    done = simulation.job("j1").global_step
    simulation.ask(request_)
    simulation.run(until=lambda: not simulation.job("j1").active)
    simulation.settle()
    assert simulation.job("j1").checkpoint_at == (done + 1, done + 1)
    if request_ is PAUSE:
        simulation.ask(RESUME)
        simulation.run()
        simulation.settle()
        assert last_state(simulation) == ("completed", "")
    audit(simulation, spec)
