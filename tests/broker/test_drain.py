"""Drained nodes: nothing new for their workers, what runs is finished and used, and then they are drained."""

import pytest

from broker.commands import SendTask
from broker.core import Core
from broker.events import DrainRequested, DriverStarted, JobSubmitted, ResumeRequested, UndrainRequested
from broker.harness import Simulation
from broker.holds import Drain
from broker.usage import Usage
from broker.views import job_view, node_views, status_view
from digend.wire.records import IdleRecord, StepRecord, TaskRecord
from tests.broker.audit import audit, check_seconds, states_of, worker_states
from tests.broker.support import S, bodies, evaluation, job, last_state
from tests.broker.test_pools import box, cluster, run

DRAIN = DrainRequested(target="b", by="ann", why="new kernel")


def states(simulation: Simulation, node: str) -> dict[str, str]:
    views = node_views(simulation.core.state, simulation.now_ns)
    return {view.name: view.state for view in views if view.node == node}


def granted_to(simulation: Simulation, worker: str, since_ns: int) -> list[str]:
    """Kinds of tasks that were given to a worker after an instant."""
    session = simulation.core.state.workers[worker].session
    return [
        command.task.kind
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and command.session == session and batch.now_ns > since_ns
    ]


@pytest.mark.parametrize("at", range(1, 60, 3))
def test_a_generator_is_drained_at_many_instants(at: int) -> None:
    """What it made is used; nothing is made twice for the drain's sake, and the job goes on without it."""
    simulation = cluster(box("a"), box("b", trainer=False))
    spec = job(num_global_steps=3, evaluation=evaluation(1))
    simulation.submit(spec)
    for _ in range(at):
        simulation.step()
    simulation.ask(DRAIN)
    simulation.step()
    drained_ns = simulation.now_ns
    simulation.run(until=lambda: states(simulation, "b") == {"b/generator/0": "drained"}, limit_ns=300 * S)
    assert simulation.job("j1").open or at > 50
    if simulation.job("j1").open:
        run(simulation)
        assert not granted_to(simulation, "b/generator/0", drained_ns)
    assert last_state(simulation) == ("completed", "")
    audit(simulation, spec)
    check_seconds(simulation, spec, list(simulation.shells))
    wasted = simulation.job("j1").counters.get("wasted_generation", 0)
    assert wasted == 0
    idle = {body.cause for body in bodies(simulation, IdleRecord) if body.worker == "b/generator/0"}
    assert "drained by ann: new kernel" in idle


def test_a_drained_worker_says_why_and_since_when() -> None:
    simulation = cluster(box("a"), box("b"))
    simulation.ask(DRAIN)
    simulation.run(until=lambda: simulation.now_ns > 10 * S, limit_ns=400 * S)
    status = status_view(simulation.core.state, simulation.now_ns, 0)
    (drain,) = status.drains
    assert (drain.target, drain.by, drain.why) == ("b", "ann", "new kernel")
    assert drain.age_s >= 10
    nodes = {view.name: view for view in status.nodes}
    assert nodes["b/generator/0"].state == "drained"
    assert nodes["b/generator/0"].reason == "drained by ann: new kernel"
    assert (nodes["b/generator/0"].drained, nodes["a/generator/0"].drained) == ("new kernel", "")
    assert nodes["a/generator/0"].state == "idle"


def test_one_worker_is_drained_by_its_name() -> None:
    simulation = cluster(box("a", 2))
    spec = job()
    simulation.submit(spec)
    simulation.ask(DrainRequested(target="a/generator/1"))
    run(simulation)
    assert {body.worker for body in bodies(simulation, TaskRecord)} == {"a/generator/0", "a/trainer/0"}
    audit(simulation, spec)


def test_draining_the_only_trainer_pauses_its_job_at_the_border_and_undrain_goes_on() -> None:
    simulation = cluster(box("a", trainer=False), box("b", 0))
    spec = job(num_global_steps=3, checkpoint_every=0)
    simulation.submit(spec)
    simulation.run(until=lambda: bool(bodies(simulation, StepRecord)))
    simulation.ask(DRAIN)
    simulation.step()
    view = job_view(simulation.core.state, simulation.job("j1"))
    assert view.reason == "pauses after global step 2 of 3 by ann: b is drained: new kernel"
    assert states(simulation, "b") == {"b/trainer/0": "draining"}
    simulation.run(until=lambda: states(simulation, "b") == {"b/trainer/0": "drained"})
    assert last_state(simulation) == ("paused", "paused by ann: b is drained: new kernel")
    assert simulation.job("j1").checkpoint_at == (2, 2)
    simulation.ask(UndrainRequested(target="b"))
    run(simulation)
    assert last_state(simulation) == ("completed", "")
    assert [body.global_step for body in bodies(simulation, StepRecord)] == [1, 2, 3]
    audit(simulation, spec)


def test_a_whole_box_is_drained_with_its_trainer_and_generators() -> None:
    """Its generators finish the open global step, without which the trainer would never come to the border."""
    simulation = cluster(box("b", 2))
    spec = job(num_global_steps=3)
    simulation.submit(spec)
    simulation.run(until=lambda: simulation.now_ns > 2 * S, limit_ns=400 * S)
    simulation.ask(DRAIN)
    simulation.run(until=lambda: set(states(simulation, "b").values()) == {"drained"}, limit_ns=100 * S)
    assert last_state(simulation)[0] == "paused"
    assert simulation.job("j1").global_step == 1
    simulation.ask(ResumeRequested(job="j1"))
    simulation.step()
    assert last_state(simulation) == ("queued", "no trainer: b is drained by ann: new kernel")
    simulation.ask(UndrainRequested(target="b"))
    run(simulation)
    audit(simulation, spec)
    assert last_state(simulation) == ("completed", "")


def test_with_its_last_generator_drained_the_job_waits_and_says_so() -> None:
    simulation = cluster(box("a", 0), box("b", trainer=False))
    spec = job(num_global_steps=2)
    simulation.submit(spec)
    simulation.run(until=lambda: bool(bodies(simulation, StepRecord)))
    simulation.ask(DRAIN)
    end_ns = simulation.now_ns + 60 * S
    simulation.run(until=lambda: simulation.now_ns > end_ns, limit_ns=400 * S)
    view = job_view(simulation.core.state, simulation.job("j1"))
    assert (view.state, view.reason) == ("running", "waits: no generator: b is drained by ann: new kernel")
    simulation.ask(UndrainRequested(target="b"))
    run(simulation)
    audit(simulation, spec)
    assert last_state(simulation) == ("completed", "")


def test_a_drained_node_that_comes_back_stays_drained_also_after_a_restart_of_the_driver() -> None:
    simulation = cluster(box("a"), box("b", trainer=False))
    spec = job(num_global_steps=3)
    simulation.submit(spec)
    simulation.at(S, lambda: simulation.ask(DRAIN))
    simulation.at(2 * S, lambda: simulation.kill("b/generator/0", S))
    simulation.at(4 * S, simulation.restart_driver)
    run(simulation)
    assert "b/generator/0" not in {body.worker for body in bodies(simulation, TaskRecord) if body.start_ns > 2 * S}
    assert worker_states(simulation, "b/generator/0")[:2] == ["lost", "joined"]
    audit(simulation, spec, retold=True)


def test_an_undrained_node_takes_its_share_again() -> None:
    simulation = cluster(box("a"), box("b", trainer=False))
    spec = job(num_global_steps=4)
    simulation.submit(spec)
    simulation.ask(DRAIN)
    simulation.at(4 * S, lambda: simulation.ask(UndrainRequested(target="b")))
    run(simulation)
    assert "b/generator/0" in {body.worker for body in bodies(simulation, TaskRecord)}
    audit(simulation, spec)


def test_a_pause_for_a_drain_is_taken_back_with_it() -> None:
    simulation = cluster(box("b"))
    simulation.submit(job(num_global_steps=2))
    simulation.run(until=lambda: simulation.now_ns > 2 * S, limit_ns=400 * S)
    simulation.ask(DRAIN)
    simulation.step()
    simulation.ask(UndrainRequested(target="b"))
    run(simulation)
    assert "paused" not in states_of(simulation)


def test_a_core_that_starts_anew_is_told_of_drains_and_usage() -> None:
    """As the driver does where no job was open: a new journal segment, a new core."""
    core = Core()
    drain = Drain(target="b", by="ann", why="new kernel", since_ns=5)
    core.step(10, [DriverStarted(epoch=2, drains=(drain,), usage={"ann": Usage(7, 10)})])
    core.step(11, [JobSubmitted(spec=job())])
    assert core.state.drains == {"b": drain}
    assert core.state.usage["ann"] == Usage(7, 10)
