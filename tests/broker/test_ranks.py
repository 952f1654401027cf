"""Several trainers as one: they meet before anything is trained, and a lost one costs the job an incarnation only."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker.commands import AskJoin, AskLeave, AskStore, SendTask
from broker.events import DrainRequested, PauseRequested, RankBroke, ResumeRequested, UndrainRequested, WorkerGone
from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.spec import JobSpec
from broker.views import job_view, node_views, queue_view, status_view
from digend.wire.records import IdleRecord, Notice, RestartRecord, StepRecord
from digend.wire.tasks import TaskError, UpdateTask
from tests.broker.audit import audit, check_seconds, steps_of
from tests.broker.support import GENERATOR, MS, TIMES, S, bodies, job, last_state, slots

RANKS = ("n/trainer/0", "n/trainer/1", "n/trainer/2")


def trainers(num: int, node: str = "n", **given: Any) -> list[Slot]:
    return [Slot(name=f"{node}/trainer/{index}", role="trainer", **given) for index in range(num)]


def cluster(spec: JobSpec, more: list[Slot], **options: Any) -> Simulation:
    """Two generators and these."""
    times = replace(TIMES, prepare=300 * MS)
    simulation = Simulation(times, [*slots(2, trainer=False), *more], persist_ns=0, **options)
    simulation.submit(spec)
    return simulation


def ranked(num: int = 3, **changes: Any) -> JobSpec:
    return job(**{"ranks": num, "num_global_steps": 4, **changes})


def ended(simulation: Simulation) -> None:
    simulation.run(limit_ns=2_000 * S)
    simulation.settle()


def commands(simulation: Simulation, kind: type) -> list[Any]:
    return [command for batch in simulation.batches for command in batch.commands if isinstance(command, kind)]


def reasons(simulation: Simulation) -> list[str]:
    return [body.reason for body in bodies(simulation, RestartRecord)]


def meets(simulation: Simulation) -> Callable[[], bool]:
    def met() -> bool:
        found = simulation.core.state.jobs.get("j1")
        return found is not None and found.rank_set is not None and found.rank_set.formed

    return met


def updating(simulation: Simulation) -> Callable[[], bool]:
    return lambda: any(lease.label == "update" for lease in simulation.core.state.leases.values())


def test_three_ranks_train_as_one() -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(3))
    ended(simulation)
    assert last_state(simulation) == ("completed", "")
    audit(simulation, spec)
    check_seconds(simulation, spec, list(RANKS))
    assert [step.global_step for step in bodies(simulation, StepRecord)] == [1, 2, 3, 4]
    (opened,) = commands(simulation, AskStore)
    joins = commands(simulation, AskJoin)
    assert [(join.ranks.rank, join.ranks.size, join.ranks.epoch) for join in joins] == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
    assert opened.epoch == 1
    assert len(commands(simulation, AskLeave)) == 3
    sent = {command.session for command in commands(simulation, SendTask) if isinstance(command.task, UpdateTask)}
    assert len(sent) == 1, "rank 0 has all leases"
    assert any("3 trainer ranks have met (epoch 1)" in body.message for body in bodies(simulation, Notice))


def test_nothing_is_given_to_rank_0_before_all_have_met() -> None:
    simulation = cluster(ranked(), trainers(3))
    simulation.run(until=lambda: bool(commands(simulation, AskJoin)))
    assert not [lease for lease in simulation.core.state.leases.values() if lease.worker in RANKS]
    simulation.run(until=meets(simulation))
    assert [lease.label for lease in simulation.core.state.leases.values() if lease.worker in RANKS] == ["prepare"]


def test_who_follows_idles_for_what_rank_0_does() -> None:
    simulation = cluster(ranked(2), trainers(2))
    ended(simulation)
    causes = {body.cause for body in bodies(simulation, IdleRecord) if body.worker == RANKS[1]}
    assert {"follows update", "follows commit", "follows prepare", "generation"} <= causes
    follows = [body for body in bodies(simulation, IdleRecord) if body.cause.startswith("follows")]
    assert not any(body.bubble for body in follows)
    bubbles = [body for body in bodies(simulation, IdleRecord) if body.bubble]
    waits = [sum(body.end_ns - body.start_ns for body in bubbles if body.worker == name) for name in RANKS[:2]]
    assert waits[0] == waits[1] > 0, "a bubble of rank 0 is one of every rank"


def test_who_has_all_weights_idles_while_rank_0_generates() -> None:
    """Nothing is sharded, so a forward pass of rank 0 is rank 0's alone."""
    simulation = cluster(ranked(2, replicas=2, generators=()), trainers(2))
    ended(simulation)
    idle = [body for body in bodies(simulation, IdleRecord) if body.worker == RANKS[1]]
    assert {body.cause for body in idle if body.bubble} == {"generation", "reward"}
    assert {"follows update", "follows prepare"} <= {body.cause for body in idle}
    assert not any("generate" in body.cause for body in idle)


def test_views_show_ranks() -> None:
    simulation = cluster(ranked(2), trainers(3))
    simulation.run(until=updating(simulation))
    nodes = {node.name: (node.rank, node.ranks) for node in node_views(simulation.core.state, simulation.now_ns)}
    assert nodes[RANKS[0]] == (0, 2)
    assert nodes[RANKS[1]] == (1, 2)
    assert nodes[RANKS[2]] == (None, 1)
    assert nodes[GENERATOR] == (None, 1)
    views = {node.name: node for node in node_views(simulation.core.state, simulation.now_ns)}
    assert [views[name].doing for name in RANKS[:2]] == [
        "update of micro-batch 0, global step 1",
        "follows update of micro-batch 0, global step 1",
    ]
    assert (views[RANKS[1]].state, views[RANKS[1]].reason, views[RANKS[1]].task) == ("busy", "", "update")
    assert job_view(simulation.core.state, simulation.job("j1")).ranks == 2


def test_too_few_are_waited_for_with_a_reason() -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(2))
    simulation.run(until=lambda: simulation.now_ns > 2 * S)
    assert last_state(simulation) == ("queued", "waiting for 3 trainers, 2 free")
    status = status_view(simulation.core.state, simulation.now_ns, 0)
    assert status.problems == ("job j1 waiting for 3 trainers, 2 free",)
    simulation.connect(Slot(name=RANKS[2], role="trainer"))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"


def test_trainers_of_another_job_are_not_free() -> None:
    first = job(num_global_steps=2, generators=())
    second = ranked(2, id="j2", generators=())
    simulation = cluster(first, trainers(2))
    simulation.submit(second)
    simulation.run(until=lambda: simulation.now_ns > S)
    assert last_state(simulation, "j2") == ("queued", "waiting for 2 trainers, 1 free")
    ended(simulation)
    assert [last_state(simulation, name)[0] for name in ("j1", "j2")] == ["completed", "completed"]


def test_ranks_of_a_node_are_next_to_each_other() -> None:
    open_to_all = {"interface": "10.0.0.1"}
    more = [*trainers(1, "a", **open_to_all), *trainers(2, "b", **open_to_all), *trainers(1, "c", **open_to_all)]
    simulation = cluster(ranked(4), more)
    ended(simulation)
    joins = commands(simulation, AskJoin)
    by_rank = {join.ranks.rank: join.session for join in joins}
    names = simulation.job("j1").spec.ranks, [session for _, session in sorted(by_rank.items())]
    assert names[0] == 4
    (met,) = [body.message for body in bodies(simulation, Notice) if "have met" in body.message]
    assert met.endswith("b/trainer/0, b/trainer/1, a/trainer/0, c/trainer/0")


def test_ten_slots_are_in_the_order_of_their_numbers() -> None:
    simulation = cluster(ranked(11, num_global_steps=1), trainers(11))
    ended(simulation)
    (met,) = [body.message for body in bodies(simulation, Notice) if "have met" in body.message]
    assert met.endswith(", ".join(f"n/trainer/{slot}" for slot in range(11)))


def test_boxes_without_an_interface_are_not_mixed() -> None:
    simulation = cluster(ranked(2), [*trainers(1, "a"), *trainers(1, "b", interface="10.0.0.2")])
    simulation.run(until=lambda: simulation.now_ns > S)
    reason = (
        "waiting for 2 trainers, 2 free; no [trainer] interface is set for a/trainer/0, so other boxes do not reach"
    )
    assert last_state(simulation)[1].startswith(reason)


def test_two_nodes_of_one_host_meet_on_its_loopback() -> None:
    simulation = cluster(ranked(2), [*trainers(1, "a", host="box"), *trainers(1, "b", host="box")])
    ended(simulation)
    assert last_state(simulation)[0] == "completed"


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
    session = simulation.core.state.workers[RANKS[1]].session
    assert session is not None
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
    session = simulation.core.state.workers[RANKS[1]].session
    assert session is not None
    late = TaskError(reason="rank_lost", message="late", retry=True)
    simulation.say(RankBroke(session=session, job="j1", epoch=0, error=late))
    ended(simulation)
    assert not bodies(simulation, RestartRecord)


def test_pause_and_resume() -> None:
    spec = ranked(2)
    simulation = cluster(spec, trainers(2))
    simulation.run(until=updating(simulation))
    simulation.ask(PauseRequested(job="j1"))
    simulation.run(until=lambda: simulation.job("j1").state == "paused")
    simulation.settle()
    assert not any(simulation.shells[name].engine.loaded for name in RANKS[:2])
    assert not any(simulation.shells[name].seat.inventory for name in RANKS[:2])
    simulation.ask(ResumeRequested(job="j1"))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)
    assert len(steps_of(simulation, spec)) == 4, "nothing is trained twice"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_drained_rank_pauses_the_job(rank: int) -> None:
    spec = ranked(2)
    simulation = cluster(spec, trainers(2))
    simulation.run(until=updating(simulation))
    simulation.ask(DrainRequested(target=RANKS[rank], why="new fans"))
    simulation.run(until=lambda: simulation.job("j1").state == "paused")
    simulation.ask(ResumeRequested(job="j1"))
    simulation.run(until=lambda: simulation.job("j1").state == "queued")
    assert last_state(simulation)[1] == f"waiting for 2 trainers, 1 free; {RANKS[rank]} is drained: new fans"
    simulation.ask(UndrainRequested(target=RANKS[rank]))
    ended(simulation)
    assert last_state(simulation)[0] == "completed"
    audit(simulation, spec)


def test_cancelled_in_the_middle() -> None:
    spec = ranked()
    simulation = cluster(spec, trainers(3))
    simulation.run(until=updating(simulation))
    simulation.cancel("j1")
    ended(simulation)
    assert last_state(simulation)[0] == "cancelled"
    audit(simulation, spec)
    assert not any(simulation.shells[name].seat.inventory for name in RANKS)


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
