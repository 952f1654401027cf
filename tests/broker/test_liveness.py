"""Slow is not dead: torpid, then lost; a healed worker is a new session; a driver that slept blames nobody."""

from dataclasses import replace

import pytest

from broker.commands import AcknowledgeResult, Evict, SendTask, WakeAt
from broker.core import Core
from broker.events import (
    DriverStarted,
    Event,
    JobSubmitted,
    TaskFinished,
    Tick,
    WorkerBeat,
    WorkerGone,
    WorkerHello,
)
from broker.harness import Simulation
from broker.harness_driver import Batch
from broker.harness_engine import Slot
from broker.state import SECOND
from broker.views import job_view, node_views
from digend.wire.records import IdleRecord, RestartRecord, TaskRecord, WorkerState
from digend.wire.tasks import ResetTask
from digend.wire.workers import Hello, PreparedJob, Versions
from tests.broker.audit import audit, check_seconds, worker_states
from tests.broker.support import GENERATOR, TIMES, TRAINER, S, bodies, finished, job, last_state, simulate


def hello(name: str = GENERATOR, role: str = "generator", instance: str = "i1") -> Hello:
    assert role in ("generator", "trainer")
    return Hello(
        role="generator" if role == "generator" else "trainer",
        name=name,
        node="n",
        instance=instance,
        pid=1,
        data="inproc://x",
        device="cpu",
        versions=Versions(digend="0", python="3"),
    )


def test_a_lone_silent_worker_is_torpid_then_lost() -> None:
    """The core is run by nothing but the ticks that it asks for."""
    core, now = Core(), 0
    commands = core.step(now, [DriverStarted(epoch=1), WorkerHello(session="s1", hello=hello())])
    times = []
    while GENERATOR in core.state.workers:
        (wake,) = [command for command in commands if isinstance(command, WakeAt)]
        now = wake.at_ns
        commands = core.step(now, [Tick()])
        times.append((now // SECOND, core.state.workers[GENERATOR].torpid if core.state.workers else None))
    assert times == [(4, True), (15, None)]
    assert [command.session for command in commands if isinstance(command, Evict)] == ["s1"]


def test_a_beat_heals_a_torpid_worker() -> None:
    core = Core()
    core.step(0, [DriverStarted(epoch=1), WorkerHello(session="s1", hello=hello())])
    core.step(5 * SECOND, [Tick()])
    assert core.state.workers[GENERATOR].torpid
    core.step(6 * SECOND, [WorkerBeat(session="s1", lease=None, done=0)])
    assert not core.state.workers[GENERATOR].torpid


@pytest.mark.parametrize("asleep_s", [10, 60, 10_000])
def test_a_driver_that_slept_blames_nobody(asleep_s: int) -> None:
    """A suspended machine: everything is late, the beats of meanwhile come with the first step."""
    simulation = simulate(job(num_global_steps=1))
    simulation.run(until=lambda: simulation.now_ns > S)
    core, at = simulation.core, simulation.now_ns + asleep_s * SECOND
    commands = core.step(at, [Tick()])
    assert not [command for command in commands if isinstance(command, Evict)]
    assert not any(worker.torpid for worker in core.state.workers.values())
    assert len(core.state.leases) > 0


@pytest.mark.parametrize("strategy", ["never", "always"])
def test_stopped_for_long(strategy: str) -> None:
    """SIGSTOP: no new leases, then leases end; on SIGCONT it is a new session whose old results do not count."""
    spec = job(num_global_steps=8, strategy=strategy)
    simulation = simulate(spec)
    simulation.at(1_200 * S // 1000, lambda: simulation.freeze(GENERATOR, 25 * S))
    simulation.run()
    simulation.settle()
    assert worker_states(simulation, GENERATOR) == ["torpid", "lost", "joined"]
    audit(simulation, spec)
    held = [body for body in bodies(simulation, IdleRecord) if body.worker == GENERATOR]
    assert any(body.cause.startswith("lost generate") for body in held)
    lost = next(body for body in bodies(simulation, WorkerState) if body.state == "lost")
    assert "no heartbeat for 15.0 s" in lost.reason


def test_a_torpid_worker_gets_no_lease() -> None:
    simulation = simulate(job(num_global_steps=6))
    simulation.at(1_200 * S // 1000, lambda: simulation.freeze(GENERATOR, 12 * S))
    simulation.run()
    session = next(
        event.session
        for batch in simulation.batches
        for event in batch.events
        if isinstance(event, WorkerHello) and event.hello.name == GENERATOR
    )
    torpid = [
        record.at_ns
        for record in simulation.records["j1"]
        if isinstance(record.body, WorkerState) and record.body.state in ("torpid", "healed")
    ]
    assert len(torpid) == 2
    sent = [
        batch.now_ns
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and command.session == session
    ]
    assert not [at for at in sent if torpid[0] <= at < torpid[1]]
    assert [at for at in sent if at >= torpid[1]], "it is given work again"


def test_late_results_of_a_lost_session_are_acknowledged_and_freed() -> None:
    spec = job(num_global_steps=8)
    simulation = simulate(spec)
    simulation.at(1_200 * S // 1000, lambda: simulation.cut(GENERATOR, 30 * S))
    simulation.run()
    simulation.settle()
    audit(simulation, spec, retold=True)
    late = [
        event.lease
        for batch in simulation.batches
        if batch.now_ns > 31 * S
        for event in batch.events
        if isinstance(event, TaskFinished) and batch_of(simulation, event.lease).now_ns < 2 * S
    ]
    assert late
    acknowledged = {
        command.lease
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, AcknowledgeResult)
    }
    assert set(late) <= acknowledged
    counted = {body.lease for body in bodies(simulation, TaskRecord)}
    assert not set(late) & counted


def batch_of(simulation: Simulation, lease: str) -> Batch:
    """In which a lease was given."""
    return next(
        batch
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and command.lease == lease
    )


def test_a_task_without_progress_costs_the_session() -> None:
    """Heartbeats alone do not renew a lease."""
    core = Core()
    simulation = simulate(job(lease_s=5.0))
    simulation.run(until=lambda: any(lease.label == "generate" for lease in simulation.core.state.leases.values()))
    core = simulation.core
    lease = next(lease for lease in core.state.leases.values() if lease.label == "generate")
    worker = core.state.workers[lease.worker]
    assert worker.session is not None
    others = [other.session for other in core.state.workers.values() if other is not worker and other.session]
    evicted: list[str] = []
    for second in range(1, 8):
        events: list[Event] = [WorkerBeat(session=worker.session or "", lease=lease.id, done=3)]
        events += [WorkerBeat(session=other, lease=None, done=0) for other in others]
        commands = core.step(simulation.now_ns + second * SECOND, events)
        evicted += [command.reason for command in commands if isinstance(command, Evict)]
    assert any("generate made no progress for 5 s" in reason for reason in evicted)


def test_a_score_that_never_comes_is_tried_again_and_then_a_failed_score() -> None:
    """Its process is lost each time; the samples are elsewhere, so nothing else is made again."""
    spec = job(score_lease_s=5.0, scoring="dedicated", reward_retries=1, prompts_per_rollout=1)
    simulation = simulate(spec, 1, 2)
    simulation.run(until=lambda: any(lease.label == "score" for lease in simulation.core.state.leases.values()))
    core = simulation.core
    batch = next(lease.micro_batch for lease in core.state.leases.values() if lease.label == "score")
    assert batch is not None
    now, said = simulation.now_ns, list[str]()
    for second in range(1, 14):
        beats = [
            WorkerBeat(session=worker.session or "", lease=worker.lease, done=second * (worker.role != "reward"))
            for worker in core.state.workers.values()
        ]
        for command in core.step(now + second * SECOND, beats):
            said += [command.reason] if isinstance(command, Evict) else []
    assert said == ["score made no progress for 5 s"] * 2
    scores = [score for fragment in batch.fragments for score in fragment.scores.values()]
    assert scores
    assert all(score.failure == "score made no progress for 5 s" for score in scores)
    assert batch.failures == 0


@pytest.mark.parametrize("retries", [0, 1])
def test_a_score_that_hangs_where_the_samples_are_fails_the_job_after_its_tries(retries: int) -> None:
    """Its process takes the samples along, so they are made again, and nothing can be masked for ever."""
    spec = job(score_lease_s=5.0, lease_s=500.0, reward_retries=retries, prompts_per_rollout=1)
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: any(lease.label == "score" for lease in simulation.core.state.leases.values()))
    core, now = simulation.core, simulation.now_ns
    (batch,) = [lease.micro_batch for lease in core.state.leases.values() if lease.label == "score"]
    for second in range(1, 8):
        beats = [
            WorkerBeat(session=each.session or "", lease=each.lease, done=0) for each in core.state.workers.values()
        ]
        core.step(now + second * SECOND, beats)
    found = core.state.jobs["j1"]
    assert batch is not None
    assert batch.late_scores == 1
    assert (found.state == "failed") == (retries == 0)
    if retries == 0:
        assert found.reason.startswith("score made no progress for 5 s, once for micro-batch 0; a reward that only")


def test_progress_renews_a_lease_for_as_long_as_it_takes() -> None:
    spec = job(num_global_steps=1, lease_s=5.0)
    simulation = finished(spec, times=replace(TIMES, generate=100 * S))
    audit(simulation, spec)
    assert not bodies(simulation, WorkerState)


def test_a_worker_that_leaves_is_not_waited_for() -> None:
    spec = job(num_global_steps=3)
    simulation = simulate(spec)
    simulation.at(2 * S, lambda: simulation.kill(GENERATOR))
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    check_seconds(simulation, spec, ["n/generator/1", TRAINER])


def test_driver_restart_does_not_wait_for_ever_for_who_is_gone() -> None:
    spec = job(num_global_steps=2)
    simulation = simulate(spec)
    simulation.at(2 * S, lambda: simulation.kill(GENERATOR, noticed=False))
    simulation.at(2 * S + 1, simulation.restart_driver)
    simulation.run()
    simulation.settle()
    audit(simulation, spec, retold=True)
    reasons = [body.reason for body in bodies(simulation, WorkerState) if body.worker == GENERATOR]
    assert "it did not come back after the driver's restart" in reasons


def test_who_waits_for_the_driver_says_so() -> None:
    spec = job(num_global_steps=1)
    simulation = simulate(spec)
    simulation.at(S // 2, simulation.restart_driver)
    simulation.run()
    simulation.settle()
    audit(simulation, spec, retold=True)
    check_seconds(simulation, spec, list(simulation.shells))
    waited = [body for body in bodies(simulation, IdleRecord) if body.cause == "driver restart"]
    assert [(body.worker, body.bubble) for body in waited] == [(TRAINER, False)]


def returned(applied: tuple[int, ...], incarnation: int = 0, version: int = 0) -> Simulation:
    """A trainer that comes back to a restarted driver, which knows (0,) to be applied, and says so and so."""
    simulation = simulate(job(num_global_steps=1), 1)
    simulation.step()
    simulation.run(until=lambda: simulation.job("j1").applied() == (0,) and not _updating(simulation))
    simulation.restart_driver(S)
    shell = simulation.shells[TRAINER]
    honest_hello = shell.hello

    def lying() -> Hello:
        said = honest_hello()
        prepared = PreparedJob(job="j1", incarnation=incarnation, version=version, global_step=0, applied=applied)
        return replace(said, prepared=(prepared,) if version >= 0 else ())

    shell.hello = lying  # type: ignore[method-assign]
    simulation.run(until=lambda: simulation.core.state.epoch == 2 and _is_back(simulation))
    return simulation


def _updating(simulation: Simulation) -> bool:
    return any(lease.label == "update" for lease in simulation.core.state.leases.values())


def _is_back(simulation: Simulation) -> bool:
    trainer = simulation.core.state.workers.get(TRAINER)
    return trainer is not None and trainer.session is not None


def resets(simulation: Simulation) -> int:
    return sum(
        isinstance(command, SendTask) and isinstance(command.task, ResetTask)
        for batch in simulation.batches
        for command in batch.commands
    )


def test_a_trainer_that_reports_the_journalled_set_goes_on() -> None:
    simulation = returned((0,))
    assert resets(simulation) == 0
    assert simulation.job("j1").applied() == (0,)


@pytest.mark.parametrize("applied", [(), (1,), (0, 1), (0, 1, 2)])
def test_a_trainer_that_reports_another_set_is_reset_and_the_step_requeued(applied: tuple[int, ...]) -> None:
    simulation = returned(applied)
    assert resets(simulation) == 1
    assert simulation.job("j1").applied() == ()
    assert not bodies(simulation, RestartRecord)


@pytest.mark.parametrize(("incarnation", "version"), [(0, 3), (5, 0), (0, -1)], ids=["version", "incarnation", "none"])
def test_a_trainer_that_holds_other_weights_starts_again_from_the_checkpoint(incarnation: int, version: int) -> None:
    simulation = returned((0,), incarnation, version)
    assert resets(simulation) == 0
    (restart,) = bodies(simulation, RestartRecord)
    assert (restart.incarnation, restart.global_step) == (1, 0)
    assert "the trainer holds" in restart.reason


def test_a_new_process_of_the_same_name_replaces_the_old() -> None:
    core = Core()
    core.step(0, [DriverStarted(epoch=1), JobSubmitted(spec=job()), WorkerHello(session="s1", hello=hello())])
    commands = core.step(1, [WorkerHello(session="s2", hello=hello(instance="i2"))])
    assert [command.session for command in commands if isinstance(command, Evict)] == ["s1"]
    assert core.state.workers[GENERATOR].session == "s2"
    core.step(2, [WorkerGone(session="s1", reason="its connection was refused")])
    assert core.state.workers[GENERATOR].session == "s2", "the old session's end is not the new one's"


def test_nothing_happens_for_sessions_that_are_over() -> None:
    simulation = finished(job())
    core = simulation.core
    before = last_state(simulation)
    core.step(simulation.now_ns + 1, [WorkerBeat(session="s9.9", lease="1.1", done=1)])
    assert last_state(simulation) == before


def test_now_never_goes_back() -> None:
    core = Core()
    core.step(10 * SECOND, [DriverStarted(epoch=1), WorkerHello(session="s1", hello=hello())])
    core.step(5 * SECOND, [Tick()])
    assert core.state.now == 10 * SECOND


def test_slots_are_one_process_each() -> None:
    simulation = Simulation(TIMES, [Slot(name=GENERATOR, role="generator")])
    simulation.settle()
    simulation.kill(GENERATOR, S)
    simulation.settle()
    assert simulation.shells[GENERATOR].engine.instance.endswith("#2")
    assert list(simulation.core.state.workers) == [GENERATOR]


def test_whoever_waits_while_it_loads_says_what_for() -> None:
    """A reward's service that is not up: the job and the worker have that for a reason, as long as it is so."""
    simulation = simulate(job(), 2)
    simulation.run(until=lambda: GENERATOR in {lease.worker for lease in simulation.core.state.leases.values()})
    core, why = simulation.core, "waits for http://127.0.0.1:8951 (refused), 12 of 30 s"
    lease = next(lease for lease in core.state.leases.values() if lease.worker == GENERATOR)
    assert lease.label == "prepare"

    def reasons(**problems: str) -> tuple[str, str]:
        for name, problem in problems.items():
            session = core.state.workers[f"n/generator/{name[-1]}"].session or ""
            core.step(simulation.now_ns, [WorkerBeat(session=session, lease=None, done=0, problem=problem)])
        found = {node.name: node.reason for node in node_views(core.state, simulation.now_ns)}
        return job_view(core.state, simulation.job("j1")).reason, found[GENERATOR]

    loading, nothing = reasons()
    assert nothing == ""
    assert reasons(g0=why) == (f"{loading}; {GENERATOR} {why}", why)
    assert reasons(g1=why) == (f"{loading}; {GENERATOR} {why}; and 1 more like it", why)
    assert reasons(g0="", g1="") == (loading, "")
