"""The sole generator is lost for good: the trainer encodes, generates and scores, and the job goes on."""

import pytest

from broker.harness import Simulation
from broker.spec import JobSpec
from broker.views import job_view, status_view
from digend.wire.records import StepRecord, TaskRecord
from tests.broker.audit import audit
from tests.broker.support import GENERATOR, TRAINER, S, bodies, evaluation, job, last_state, prompts, simulate


def running(simulation: Simulation) -> bool:
    found = simulation.core.state.jobs.get("j1")
    return found is not None and found.state == "running"


def deserted_at_every_instant(spec: JobSpec, num_rewards: int) -> list[Simulation]:
    """One run for each batch of the undisturbed run in which the job runs, its generator gone from there on."""
    undisturbed = simulate(spec, 1, num_rewards)
    undisturbed.run(until=lambda: running(undisturbed))
    first = len(undisturbed.batches)
    undisturbed.run()
    runs = []
    for at in range(first, len(undisturbed.batches)):
        simulation = simulate(spec, 1, num_rewards)
        for _ in range(at):
            simulation.step()
        simulation.kill(GENERATOR)
        simulation.run(limit_ns=1000 * S)
        simulation.settle()
        runs.append(simulation)
    return runs


@pytest.mark.parametrize("strategy", ["always", "planned"])
@pytest.mark.parametrize("scoring", ["colocated", "dedicated"])
@pytest.mark.parametrize("changes", [{}, {"evaluation": evaluation(2, every=1)}, {"staleness": 0.5}])
def test_the_job_goes_on(strategy: str, scoring: str, changes: dict[str, object]) -> None:
    size = {"prompts": prompts(3), "prompts_per_rollout": 3, "num_global_steps": 2}
    spec = job(strategy=strategy, scoring=scoring, checkpoint_every=0, **(size | changes))
    for simulation in deserted_at_every_instant(spec, 2 if scoring == "dedicated" else 0):
        assert last_state(simulation) == ("completed", "")
        audit(simulation, spec)
        assert len(bodies(simulation, StepRecord)) == 2


def test_not_where_the_trainer_never_generates() -> None:
    """The job waits, and a generator that comes back finds its work."""
    spec = job(strategy="never", checkpoint_every=0)
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: running(simulation))
    simulation.kill(GENERATOR, 60 * S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    assert simulation.now_ns > 60 * S
    by_trainer = {body.task for body in bodies(simulation, TaskRecord) if body.worker == TRAINER}
    assert by_trainer <= {"prepare", "update", "commit", "checkpoint"}


@pytest.mark.parametrize("changes", [{}, {"scoring": "dedicated"}], ids=["", "reward processes there"])
def test_meanwhile_the_job_does_not_say_that_it_waits(changes: dict[str, str]) -> None:
    simulation = simulate(job(strategy="always", checkpoint_every=0, num_global_steps=3, **changes), 1, len(changes))
    simulation.run(until=lambda: running(simulation))
    simulation.kill(GENERATOR)
    simulation.run(until=lambda: simulation.job("j1").global_step == 2)
    said = "no generator is connected; the trainer generates"
    assert reason_and_problems(simulation)[0] == said
    assert f"job j1: {said}" in reason_and_problems(simulation)[1]


@pytest.mark.parametrize(
    ("changes", "lost"),
    [({"strategy": "never"}, ""), ({"scoring": "dedicated"}, "n/reward/0"), ({}, TRAINER)],
    ids=["its strategy says never", "nobody scores", "no trainer"],
)
def test_it_waits_where_the_trainer_cannot_go_on_either(changes: dict[str, str], lost: str) -> None:
    spec = job(**{"strategy": "always", "checkpoint_every": 0, **changes})
    simulation = simulate(spec, 1, int(spec.scoring == "dedicated"))
    simulation.run(until=lambda: running(simulation))
    for name in (GENERATOR, lost):
        if name:
            simulation.kill(name)
    end = simulation.now_ns + 30 * S
    while simulation.now_ns < end and simulation.step():
        pass
    reason, problems = reason_and_problems(simulation)
    assert reason == f"waits: no {'trainer' if lost == TRAINER else 'generator'} is connected"
    assert f"job j1 {reason}" in problems


def reason_and_problems(simulation: Simulation) -> tuple[str, tuple[str, ...]]:
    state = simulation.core.state
    return job_view(state, simulation.job("j1")).reason, status_view(state, simulation.now_ns, 0).problems


def test_it_ends_when_a_generator_is_back() -> None:
    spec = job(strategy="always", checkpoint_every=0, num_global_steps=4)
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: running(simulation))
    simulation.kill(GENERATOR, 5 * S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    scored = [body for body in bodies(simulation, TaskRecord) if body.task == "score"]
    assert {body.worker for body in scored} == {GENERATOR, TRAINER}
    back = min(body.start_ns for body in scored if body.worker == GENERATOR)
    assert all(body.start_ns <= back for body in scored if body.worker == TRAINER)
