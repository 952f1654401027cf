"""Jobs from submit to end: first in, first out; cancelled in each state; waiting for whoever is missing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.commands import End, Evict, SendTask
from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.spec import JobSpec
from broker.views import job_view, node_views, queue_view, status_view
from digend.wire.records import IdleRecord, JobState, StepRecord, TaskRecord, WorkerState
from digend.wire.tasks import GenerateTask, TaskError
from tests.broker.audit import audit, check_leftovers, check_seconds, states_of
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
    simulate,
    slots,
)


def test_states_of_a_job_that_goes_well() -> None:
    simulation = finished(job())
    assert states_of(simulation) == ["queued", "preparing", "running", "completed"]


def test_two_jobs_run_one_after_the_other() -> None:
    first, second = job(), job(id="j2", name="second")
    simulation = simulate(first)
    simulation.submit(second)
    simulation.run(limit_ns=1000 * S)
    simulation.settle()
    for spec in (first, second):
        audit(simulation, spec)
        check_seconds(simulation, spec, list(simulation.shells))
    one, two = simulation.job("j1"), simulation.job("j2")
    assert one.finished_ns is not None
    assert two.started_ns == one.finished_ns
    reasons = [body.reason for body in bodies(simulation, JobState, "j2")]
    assert reasons[:3] == ["submitted", "waits for n: j1 runs there", "workers load the model"]


def test_a_job_submitted_twice_is_one_job() -> None:
    simulation = simulate(job())
    simulation.submit(job())
    simulation.run()
    simulation.submit(job(name="other"))
    simulation.settle()
    assert list(simulation.core.state.jobs) == ["j1"]
    assert states_of(simulation).count("queued") == 1
    assert simulation.core.has_job("j1") == job()
    assert simulation.core.has_job("j2") is None


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_job_that_ends_makes_room_for_the_next(end: str) -> None:
    error = TaskError(reason="model", message="no weights in the folder", retry=False)
    simulation = simulate(
        job(),
        tamper=lambda shell, task, result: error if end == "failed" and task.job == "j1" else result,
        times=replace(TIMES, prepare=S),
    )
    simulation.submit(job(id="j2"))
    if end == "cancelled":
        simulation.at(3 * S, lambda: simulation.cancel("j1"))
    simulation.run(limit_ns=1000 * S)
    simulation.settle()
    assert last_state(simulation)[0] == end
    assert last_state(simulation, "j2") == ("completed", "")
    audit(simulation, job(id="j2"))
    check_leftovers(simulation)


def cancellable() -> tuple[JobSpec, Callable[[], Simulation]]:
    spec = job(evaluation=evaluation(2, every=1), num_global_steps=2)
    times = replace(TIMES, prepare=S, encode=S // 2, stage=S // 2, evaluate=S // 2, checkpoint=S // 2)
    return spec, lambda: simulate(spec, times=times, persist_ns=S)


def test_cancelled_at_every_instant() -> None:
    """Queued, preparing, evaluating, generating, updating, checkpointing: nothing is left, nobody works on."""
    spec, make = cancellable()
    undisturbed = make()
    undisturbed.run()
    for at in range(len(undisturbed.batches)):
        simulation = make()
        for _ in range(at):
            simulation.step()
        simulation.cancel("j1")
        simulation.run()
        simulation.settle()
        assert last_state(simulation) == ("cancelled", "by request")
        audit(simulation, spec)
        started = simulation.job("j1").started_ns
        if started is not None and at:
            check_seconds(simulation, spec, list(simulation.shells))


def test_cancel_of_a_job_that_waits_leaves_the_running_one_alone() -> None:
    first = job()
    simulation = simulate(first)
    simulation.submit(job(id="j2"))
    simulation.at(2 * S, lambda: simulation.cancel("j2"))
    simulation.at(3 * S, lambda: simulation.cancel("unknown"))
    simulation.run(limit_ns=100 * S)
    simulation.settle()
    assert last_state(simulation)[0] == "completed"
    assert last_state(simulation, "j2")[0] == "cancelled"
    assert {type(record.body) for record in simulation.records["j2"]} == {JobState}
    audit(simulation, first)
    check_seconds(simulation, first, list(simulation.shells))


def test_nobody_is_connected() -> None:
    simulation = Simulation(TIMES, [])
    simulation.submit(job())
    simulation.step()
    assert last_state(simulation) == ("queued", "no trainer is connected")
    simulation.connect(Slot(name=TRAINER, role="trainer"))
    simulation.step()
    assert last_state(simulation) == ("queued", "no generator is connected")
    problems = status_view(simulation.core.state, simulation.now_ns, 0).problems
    assert problems == ("job j1 waits: no generator is connected",)
    simulation.connect(Slot(name=GENERATOR, role="generator"))
    simulation.run()
    assert last_state(simulation)[0] == "completed"


def test_only_named_generators_generate() -> None:
    spec = job(generators=("n/generator/1",))
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: simulation.now_ns > 0)
    reason = "none of the generators n/generator/1 is connected; did you mean n/generator/0?"
    assert last_state(simulation) == ("queued", reason)
    simulation.connect(Slot(name="n/generator/1", role="generator"))
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    generated = {body.worker for body in bodies(simulation, TaskRecord) if body.task == "generate"}
    assert generated == {"n/generator/1"}
    assert {body.worker for body in bodies(simulation, IdleRecord)} <= {"n/generator/1", TRAINER}


def test_colocated_the_trainer_does_everything() -> None:
    spec = job(generators=(), evaluation=evaluation(2))
    simulation = finished(spec, 0)
    audit(simulation, spec)
    check_seconds(simulation, spec, [TRAINER])
    done = {body.task for body in bodies(simulation, TaskRecord)}
    assert done == {
        "prepare",
        "encode",
        "evaluate",
        "evaluate_score",
        "generate",
        "score",
        "update",
        "commit",
        "checkpoint",
    }
    assert bodies(simulation, StepRecord)[0].assisted_micro_batches == 0


def test_a_generator_that_joins_late_takes_its_share() -> None:
    spec = job(num_global_steps=3)
    simulation = simulate(spec, 1)
    simulation.at(3 * S, lambda: simulation.connect(Slot(name="n/generator/1", role="generator")))
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    shares = [
        body.num_samples
        for body in bodies(simulation, TaskRecord)
        if body.worker == "n/generator/1" and body.task == "generate"
    ]
    assert shares
    assert set(shares) == {2}


def test_unlike_libraries_are_refused_with_both_named() -> None:
    simulation = Simulation(TIMES, [Slot(name=TRAINER, role="trainer", numbers={"torch": "2.13"})])
    simulation.connect(Slot(name=GENERATOR, role="generator", numbers={"torch": "2.12"}))
    simulation.settle()
    (evict,) = [command for batch in simulation.batches for command in batch.commands if isinstance(command, Evict)]
    assert evict.fatal
    assert "n/generator/0 has torch 2.12, n/trainer/0 has 2.13" in evict.reason
    assert not simulation.shells[GENERATOR].alive
    assert GENERATOR not in simulation.core.state.workers


def test_libraries_of_a_reward_do_not_matter() -> None:
    made = [Slot(name=TRAINER, role="trainer", numbers={"torch": "2.13"})]
    made += [Slot(name="n/reward/0", role="reward", numbers={"torch": "1.0"})]
    simulation = Simulation(TIMES, made)
    simulation.settle()
    assert len(simulation.core.state.workers) == 2


def test_a_second_trainer_has_nothing_to_do_with_a_job_that_has_one() -> None:
    spec = job()
    simulation = simulate(spec)
    simulation.connect(Slot(name="m/trainer/0", role="trainer"))
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    trainers = {body.worker for body in bodies(simulation, TaskRecord) if body.task in ("prepare", "update")}
    assert "m/trainer/0" in trainers or TRAINER in trainers
    assert not {"m/trainer/0", TRAINER} <= trainers


def test_a_worker_with_a_job_that_is_over_is_told() -> None:
    """It was away when the job ended."""
    simulation = simulate(job())
    simulation.run(until=lambda: bool(bodies(simulation, StepRecord)))
    simulation.cut(GENERATOR, 60 * S)
    simulation.cancel("j1")
    simulation.run()
    simulation.settle()
    ends = [
        command
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, End) and command.job == "j1"
    ]
    assert len(ends) >= 3
    check_leftovers(simulation)
    assert not simulation.shells[GENERATOR].engine.loaded


def test_full_disk_holds_the_running_job_and_starts_no_other() -> None:
    spec = job()
    simulation = simulate(spec)
    simulation.submit(job(id="j2"))
    simulation.at(2 * S, lambda: simulation.disk(full=True))
    simulation.at(100 * S, lambda: simulation.disk(full=False))
    simulation.run(until=lambda: simulation.now_ns >= 90 * S)
    held = [
        command
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and batch.now_ns >= 2 * S
    ]
    assert not held
    assert not simulation.core.state.leases
    assert "disk full: no space left" in status_view(simulation.core.state, simulation.now_ns, 0).problems
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    check_seconds(simulation, spec, list(simulation.shells))
    assert any(body.cause == "disk full" and not body.bubble for body in bodies(simulation, IdleRecord))
    assert "disk full" in {body.state for body in bodies(simulation, WorkerState)}
    assert last_state(simulation, "j2")[0] == "completed"


def test_no_job_starts_on_a_full_disk() -> None:
    simulation = Simulation(TIMES, slots(1))
    simulation.disk(full=True)
    simulation.submit(job())
    simulation.settle()
    assert last_state(simulation) == ("queued", "no space left")
    simulation.disk(full=False)
    simulation.run()
    assert last_state(simulation)[0] == "completed"


def test_views_at_every_instant() -> None:
    """What clients see is always there, and adds up."""
    simulation = simulate(job(num_global_steps=2, scoring="dedicated", evaluation=evaluation(1)), 2, 1)
    seen = set()
    while not simulation.ended():
        simulation.step()
        state = simulation.core.state
        status = status_view(state, simulation.now_ns, 0)
        nodes = node_views(state, simulation.now_ns)
        assert len(nodes) == 4
        assert all(node.doing for node in nodes)
        assert all(bool(node.reason) == (node.state != "busy") for node in nodes)
        assert all(bool(node.task) == (node.state == "busy") for node in nodes)
        assert all(not node.bubble or (node.cause and not node.task) for node in nodes)
        assert all(node.for_s is not None and node.for_s >= 0 for node in nodes if node.task or node.cause)
        assert status.now_ns == simulation.now_ns
        items = queue_view(state, simulation.now_ns).items
        assert status.sq_depth + status.uq_depth == len(items)
        assert all(item.reason and item.age_s >= 0 for item in items)
        assert status.bubble_share is None or 0 <= status.bubble_share <= 1
        seen |= {node.state for node in nodes} | {item.queue for item in items}
    assert {"idle", "busy", "sq"} <= seen
    view = job_view(simulation.core.state, simulation.job("j1"))
    assert (view.state, view.global_step, view.policy_version, view.incarnation) == ("completed", 2, 2, 0)


def test_generation_tasks_carry_what_was_drawn_from_the_seed() -> None:
    def asked(seed: int) -> list[GenerateTask]:
        simulation = finished(job(seed=seed, num_global_steps=1))
        return [
            command.task
            for batch in simulation.batches
            for command in batch.commands
            if isinstance(command, SendTask) and isinstance(command.task, GenerateTask)
        ]

    assert asked(1) == asked(1)
    seeds = {
        seed: {sample.initial_seed for task in asked(seed) for group in task.groups for sample in group.samples}
        for seed in (1, 2)
    }
    assert not seeds[1] & seeds[2]
