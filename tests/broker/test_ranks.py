"""Several trainers as one: they meet before anything is trained, and a lost one costs the job an incarnation only."""

import pytest

from broker.commands import AskJoin, AskLeave, AskStore, SendTask
from broker.events import DrainRequested, PauseRequested, ResumeRequested, UndrainRequested
from broker.harness_engine import Slot
from broker.views import job_view, node_views, status_view
from digend.wire.records import IdleRecord, Notice, StepRecord
from digend.wire.tasks import UpdateTask
from tests.broker.audit import audit, check_seconds, steps_of
from tests.broker.ranked import RANKS, cluster, commands, ended, meets, ranked, trainers, updating
from tests.broker.support import GENERATOR, S, bodies, job, last_state


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
