"""A lost rank costs a job of several an incarnation, and no step; whoever noticed, and whenever it was lost."""

from dataclasses import replace
from random import Random

import pytest

from broker.commands import AskJoin, AskLeave
from broker.events import RankBroke, WorkerGone
from broker.harness_engine import Slot
from broker.views import job_view, queue_view
from digend.wire.records import Notice, RestartRecord, StepRecord
from digend.wire.tasks import TaskError
from tests.broker.audit import audit
from tests.broker.ranked import RANKS, cluster, commands, ended, meets, ranked, reasons, session_of, trainers, updating
from tests.broker.support import GENERATOR, MS, TIMES, S, bodies, job, last_state


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "silent"])
def test_a_killed_rank_costs_an_incarnation(rank: int, noticed: bool) -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(3))
    simulation.step()
    simulation.run(until=lambda: simulation.job("j1").global_step == 2 and updating(simulation)())
    simulation.kill(RANKS[rank], back_ns=5 * S, noticed=noticed)
    simulation.step()
    simulation.run(until=lambda: simulation.job("j1").incarnation > 0)
    simulation.run(until=meets(simulation))
    assert set(simulation.job("j1").ranks) == set(RANKS)
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)
    assert simulation.job("j1").rank_epoch >= 2
    if noticed:
        assert f"trainer rank {rank} (n/trainer/{rank}) was lost" in reasons(simulation)[0]


def test_a_loss_that_peers_notice_first_is_told_as_that_loss() -> None:
    """They say that a rank is gone; which one, the driver learns a moment later."""
    spec = ranked(2)
    simulation = cluster(spec, trainers(2))
    simulation.run(until=updating(simulation))
    session = session_of(simulation, RANKS[1])
    simulation.kill(RANKS[1], back_ns=5 * S, noticed=False)
    gone = WorkerGone(session=session, reason="its connection takes no messages")
    simulation.at(simulation.now_ns + 700 * MS, lambda: simulation.say(gone))
    ended(simulation)
    assert reasons(simulation) == ["trainer rank 1 (n/trainer/1) was lost: its connection takes no messages"]
    audit(simulation, spec)


def test_while_too_few_are_left_the_reason_says_so() -> None:
    simulation = cluster(ranked(), trainers(3))
    simulation.run(until=updating(simulation))
    simulation.kill(RANKS[1])
    simulation.run(until=lambda: simulation.job("j1").incarnation == 1)
    simulation.run(until=lambda: simulation.now_ns > 20 * S)
    view = job_view(simulation.core.state, simulation.job("j1"))
    assert (view.state, view.reason) == ("preparing", "waiting for 3 trainers, 2 free")
    queued = queue_view(simulation.core.state, simulation.now_ns).items
    assert {item.reason for item in queued if item.queue == "uq"} == {
        "waits for the trainer: waiting for 3 trainers, 2 free"
    }
    assert len(commands(simulation, AskLeave)) == 2
    assert not any(lease.worker in RANKS for lease in simulation.core.state.leases.values())


def test_another_trainer_takes_the_place_of_a_lost_one() -> None:
    spec = ranked(2)
    simulation = cluster(spec, trainers(3))
    simulation.run(until=updating(simulation))
    simulation.kill(RANKS[0])
    ended(simulation)
    audit(simulation, spec)
    met = [body.message for body in bodies(simulation, Notice) if "have met" in body.message]
    assert met[-1].endswith("n/trainer/1, n/trainer/2")


def test_a_job_that_lost_a_rank_waits_for_one_that_another_job_has() -> None:
    spec, other = ranked(2, generators=(), num_global_steps=6), job(id="j2", generators=(), num_global_steps=8)
    simulation = cluster(spec, trainers(3))
    simulation.submit(other)
    simulation.step()
    simulation.run(until=lambda: all(simulation.job(name).global_step >= 1 for name in ("j1", "j2")))
    simulation.kill(RANKS[1])
    simulation.run(until=lambda: simulation.job("j1").incarnation == 1)
    assert last_state(simulation)[1] == "waiting for 2 trainers, 1 free"
    ended(simulation)
    assert [last_state(simulation, name)[0] for name in ("j1", "j2")] == ["completed", "completed"]
    met = [body.message for body in bodies(simulation, Notice) if "have met" in body.message]
    assert met[-1].endswith("n/trainer/0, n/trainer/2")
    audit(simulation, spec)


def test_a_rank_that_is_slow_while_it_loads_is_not_replaced() -> None:
    """A spare trainer is there, and the loading of a large model keeps a process from answering."""
    simulation = cluster(ranked(2, generators=()), trainers(3))
    simulation.durations = replace(TIMES, prepare=60 * S)
    simulation.run(until=meets(simulation))
    simulation.freeze(RANKS[1], 10 * S)
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    assert not bodies(simulation, RestartRecord)
    assert simulation.job("j1").ranks == ()
    assert {join.ranks.epoch for join in commands(simulation, AskJoin)} == {1}


def test_rank_0_stays_where_the_checkpoint_is() -> None:
    """The other node's trainers could not read it."""
    given = {"interface": "10.0.0.1"}
    spec = ranked(2)
    simulation = cluster(spec, [*trainers(1, "a", **given), *trainers(2, "b", **given)])
    simulation.step()
    simulation.run(until=lambda: simulation.job("j1").checkpoint_node == "b" and updating(simulation)())
    for name in ("b/trainer/0", "b/trainer/1"):
        simulation.kill(name)
    simulation.connect(Slot(name="a/trainer/1", role="trainer", interface="10.0.0.1"))
    simulation.run(until=lambda: simulation.now_ns > 30 * S)
    assert "none of b, where its checkpoint is" in job_view(simulation.core.state, simulation.job("j1")).reason
    simulation.connect(Slot(name="b/trainer/0", role="trainer", interface="10.0.0.1"))
    ended(simulation)
    audit(simulation, spec)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_join_in_time_is_lost(rank: int) -> None:
    spec = ranked(2, rank_timeout_s=20.0)
    simulation = cluster(spec, trainers(2))
    simulation.shells[RANKS[rank]].seat.deaf = True
    simulation.step()
    simulation.run(until=lambda: simulation.job("j1").incarnation == 1, limit_ns=100 * S)
    assert "it did not join the trainer ranks in 20 s" in reasons(simulation)[0]
    simulation.shells[RANKS[rank]].seat.deaf = False
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)


def test_ranks_that_never_meet_fail_the_job_with_the_reason() -> None:
    """Each process is there, and none sees the others: a firewall."""
    spec = ranked(2, rank_timeout_s=20.0)
    simulation = cluster(spec, trainers(2))
    for name in RANKS[:2]:
        seat = simulation.shells[name].seat
        seat._arrive = lambda meeting, place: None  # type: ignore[method-assign]
    ended(simulation)
    state, reason = last_state(simulation)
    assert state == "failed"
    assert reason.startswith("the trainer ranks failed 4 times, last: rank")
    assert "could not join: the others did not come" in reason


@pytest.mark.parametrize(("rank", "after_ms"), [(0, 10), (1, 10), (0, 70), (2, 70), (1, 120)])
def test_a_rank_killed_while_they_meet(rank: int, after_ms: int) -> None:
    spec = ranked(num_global_steps=2)
    simulation = cluster(spec, trainers(3))
    simulation.at(after_ms * MS, lambda: simulation.kill(RANKS[rank], back_ns=3 * S))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)


@pytest.mark.parametrize("unreleased", [False, True], ids=["released", "unreleased"])
@pytest.mark.parametrize("at_ms", [20, 60, 110, 3000])
def test_a_driver_restart_keeps_ranks_that_have_met(at_ms: int, unreleased: bool) -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(3))
    simulation.at(at_ms * MS, lambda: simulation.restart_driver(unreleased=unreleased))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec, retold=True)
    assert not bodies(simulation, RestartRecord)
    assert {join.ranks.epoch for join in commands(simulation, AskJoin)} == {1}


def test_a_rank_that_broke_while_the_driver_was_away() -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(3))
    simulation.run(until=updating(simulation))
    simulation.restart_driver(3 * S)
    simulation.kill(RANKS[0], back_ns=S)
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec, retold=True)
    assert bodies(simulation, RestartRecord)


def test_a_rank_without_its_network_stops_all_until_it_is_lost() -> None:
    spec = ranked(num_global_steps=6)
    simulation = cluster(spec, trainers(3))
    simulation.run(until=updating(simulation))
    simulation.freeze(RANKS[2], 40 * S)
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)
    assert "trainer rank 2 (n/trainer/2) was lost: no heartbeat for 15.0 s" in reasons(simulation)[0]


def test_a_rank_that_computes_for_ever_is_given_up() -> None:
    """All live and beat, and rank 0 says after its time limit that one does not answer."""
    spec = ranked(2, num_global_steps=3)
    simulation = cluster(spec, trainers(2))
    simulation.run(until=updating(simulation))
    shell = simulation.shells[RANKS[0]]
    shell.abort(TaskError(reason="rank_lost", message="rank 1 did not answer in 60 s", retry=True))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    assert reasons(simulation) == ["the trainer ranks were given up: rank 1 did not answer in 60 s"]
    audit(simulation, spec)


def test_an_answer_of_an_older_epoch_changes_nothing() -> None:
    spec = ranked(2)
    simulation = cluster(spec, trainers(2))
    simulation.run(until=updating(simulation))
    session = session_of(simulation, RANKS[1])
    late = TaskError(reason="rank_lost", message="late", retry=True)
    simulation.say(RankBroke(session=session, job="j1", epoch=0, error=late))
    ended(simulation)
    assert not bodies(simulation, RestartRecord)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(4, 30))])
def test_random_kills_lose_and_repeat_no_step(seed: int) -> None:
    """Ranks and generators die and come back, the driver restarts: each sample is trained on once in what counts."""
    rng = Random(seed)
    strategy = rng.choice(["never", "always", "planned"])
    spec = ranked(num_global_steps=5, strategy=strategy, checkpoint_every=rng.choice([1, 2]), task_retries=20)
    simulation = cluster(spec, trainers(3))
    names = [*RANKS, GENERATOR]
    for _ in range(6):
        at_ns, name, noticed = rng.randrange(1, 40_000) * MS, rng.choice(names), rng.random() < 0.5
        back_ns = rng.randrange(500, 8_000) * MS

        def strike(name: str = name, back_ns: int = back_ns, noticed: bool = noticed) -> None:
            simulation.kill(name, back_ns=back_ns, noticed=noticed)

        simulation.at(at_ns, strike)
    if rng.random() < 0.5:
        simulation.at(rng.randrange(1, 30_000) * MS, lambda: simulation.restart_driver(2 * S))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec, retold=True)
    closed = [step.global_step for step in bodies(simulation, StepRecord)]
    assert sorted(set(closed)) == [1, 2, 3, 4, 5]
