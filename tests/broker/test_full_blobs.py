"""A generator without room for more tensors: no more work while others can go on, and never a job that stands."""

from dataclasses import replace

from broker.generation import without_room
from broker.harness import Simulation
from broker.views import node_views, queue_view, status_view
from digend.wire.records import IdleRecord, TaskRecord
from tests.broker import support
from tests.broker.support import GENERATOR, S, bodies, job, last_state, simulate

OTHER = "n/generator/1"
LONG = replace(support.TIMES, generate=8 * S, assist=8 * S, update=2 * S, score=0)


def samples(simulation: Simulation, name: str) -> int:
    made = [task for task in bodies(simulation, TaskRecord) if task.task == "generate" and task.worker == name]
    return sum(task.num_samples for task in made)


def test_the_other_generator_makes_what_a_full_one_does_not() -> None:
    simulation = simulate(job(num_global_steps=4, prompts_per_rollout=8, prompts=support.prompts(8)), times=LONG)
    simulation.run(until=lambda: samples(simulation, GENERATOR) >= 4)
    simulation.shells[GENERATOR].full = True
    simulation.run(until=lambda: simulation.core.state.workers[GENERATOR].full)
    before = samples(simulation, GENERATOR), samples(simulation, OTHER)
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    made, others = samples(simulation, GENERATOR) - before[0], samples(simulation, OTHER) - before[1]
    assert made < others / 4
    causes = {idle.cause for idle in bodies(simulation, IdleRecord) if idle.worker == GENERATOR}
    assert "no room for tensors" in causes
    assert simulation.replay() is None


def test_it_works_again_once_there_is_room() -> None:
    simulation = simulate(job(num_global_steps=4), times=LONG)
    simulation.run(until=lambda: samples(simulation, GENERATOR) >= 2)
    simulation.shells[GENERATOR].full = True
    simulation.run(until=lambda: simulation.core.state.workers[GENERATOR].full)
    simulation.shells[GENERATOR].full = False
    simulation.run(until=lambda: not simulation.core.state.workers[GENERATOR].full)
    before = samples(simulation, GENERATOR)
    simulation.run()
    assert samples(simulation, GENERATOR) > before + 10


def test_a_job_whose_workers_are_all_full_goes_on() -> None:
    """Nobody else can go on, so what they hold is not enough: they make the rest."""
    simulation = simulate(job(num_global_steps=3), times=LONG)
    for shell in simulation.shells.values():
        shell.full = True
    simulation.run(limit_ns=10_000 * S)
    assert last_state(simulation)[0] == "completed"
    assert simulation.replay() is None


def test_a_worker_with_room_is_never_held_back() -> None:
    simulation = simulate(job(num_global_steps=2), times=LONG)
    simulation.run(until=lambda: samples(simulation, GENERATOR) >= 2)
    state = simulation.core.state
    assert not any(without_room(state, state.jobs["j1"], worker) for worker in state.workers.values())


def test_the_queue_tells_how_much_waits_and_where() -> None:
    simulation = simulate(job(num_global_steps=2), times=replace(LONG, update=60 * S))
    simulation.run(until=lambda: bool(queue_view(simulation.core.state, simulation.now_ns).items))
    item = queue_view(simulation.core.state, simulation.now_ns).items[0]
    assert set(item.held_by) <= {GENERATOR, OTHER}
    assert item.held_by
    assert item.num_bytes > 0
    status = status_view(simulation.core.state, simulation.now_ns, 0)
    items = queue_view(simulation.core.state, simulation.now_ns).items
    for queue, num_bytes in (("sq", status.sq_bytes), ("uq", status.uq_bytes)):
        assert num_bytes == sum(each.num_bytes for each in items if each.queue == queue)
    assert status.sq_bytes + status.uq_bytes > 0
    assert node_views(simulation.core.state, simulation.now_ns)[0].held_bytes == 0, "a session's, not the core's"
