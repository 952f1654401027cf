"""A policy version that is broadcast: to whom, and what becomes of those that get nothing."""

from dataclasses import replace
from typing import Any

from broker.commands import StageWeights
from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.spec import JobSpec
from digend.wire.broadcasts import Broadcast
from digend.wire.records import Notice, StagingRecord, StepRecord
from tests.broker.audit import audit
from tests.broker.support import GENERATOR, MS, TIMES, TRAINER, S, bodies, finished, job, last_state

OTHER = "n/generator/1"
PAIR = (Slot(name=GENERATOR, role="generator"), Slot(name=OTHER, role="generator"))
SENDER = Slot(name=TRAINER, role="trainer", broadcasts=True)


def cluster(spec: JobSpec, *workers: Slot, **options: Any) -> Simulation:
    simulation = Simulation(replace(TIMES, stage=300 * MS), workers or (*PAIR, SENDER), persist_ns=0, **options)
    simulation.submit(spec)
    return simulation


def ended(simulation: Simulation, spec: JobSpec, *, retold: bool = False) -> Simulation:
    simulation.run(limit_ns=1_000 * S)
    simulation.settle()
    audit(simulation, spec, retold=retold)
    return simulation


def told(simulation: Simulation) -> list[StageWeights]:
    return [each for batch in simulation.batches for each in batch.commands if isinstance(each, StageWeights)]


def places(simulation: Simulation, version: int) -> list[Broadcast | None]:
    return [each.broadcast for each in told(simulation) if each.weights.version == version]


def staged(simulation: Simulation, version: int) -> dict[str, tuple[str, str]]:
    """Worker -> how it came by a version, and why that was not another way."""
    found = [each for each in bodies(simulation, StagingRecord) if each.version == version]
    return {each.worker: (each.by, each.fell_back) for each in found}


def until_told(simulation: Simulation, version: int) -> None:
    simulation.run(lambda: bool(places(simulation, version)))


def test_each_version_is_broadcast_once_by_the_trainer_to_all_generators() -> None:
    spec = job(num_global_steps=4)
    simulation = ended(cluster(spec), spec)
    epochs = []
    for version in range(1, 4):
        told_of = places(simulation, version)
        assert [each.rank for each in told_of if each is not None] == [1, 2, 0]
        assert {each.members for each in told_of if each is not None} == {(TRAINER, GENERATOR, OTHER)}
        epochs += [{each.epoch for each in told_of if each is not None}]
        assert staged(simulation, version) == dict.fromkeys((GENERATOR, OTHER), ("broadcast", ""))
    assert all(len(each) == 1 for each in epochs)
    assert len(set.union(*epochs)) == 3
    assert not [notice for notice in bodies(simulation, Notice) if notice.level == "warning"]


def test_what_is_trained_is_the_same_as_with_pulls() -> None:
    spec = job(num_global_steps=3)
    pulled, sent = finished(spec, times=replace(TIMES, stage=300 * MS)), ended(cluster(spec), spec)
    assert not any(each.broadcast for each in told(pulled))
    assert bodies(pulled, StepRecord) == bodies(sent, StepRecord)


def test_a_member_that_dies_is_waited_for_no_longer_than_the_driver_knows_it_alive() -> None:
    spec = job(num_global_steps=4, publish_timeout_s=60.0)
    simulation = cluster(spec)
    until_told(simulation, 2)
    begun_ns = simulation.now_ns
    simulation.kill(OTHER)
    ended(simulation, spec)
    assert last_state(simulation) == ("completed", "")
    assert staged(simulation, 2)[GENERATOR] == ("pull", "a member is gone")
    (record,) = [each for each in bodies(simulation, StagingRecord) if each.version == 2]
    assert record.end_ns - begun_ns < S
    (warning,) = [each for each in bodies(simulation, Notice) if "broadcast failed" in each.message]
    assert warning.level == "warning"
    assert f"version 2 was pulled by {GENERATOR}" in warning.message
    assert simulation.job("j1").counters["broadcast_fallbacks"] == 1
    assert [each for each in places(simulation, 2) if each is None] == [None, None], "the trainer gives up too"
    assert staged(simulation, 3) == {GENERATOR: ("broadcast", "")}, "the next broadcast is without it"


def test_a_member_whose_end_nobody_notices_costs_the_others_the_time_limit() -> None:
    spec = job(num_global_steps=4, publish_timeout_s=5.0)
    simulation = cluster(spec)
    until_told(simulation, 2)
    begun_ns = simulation.now_ns
    simulation.kill(OTHER, noticed=False)
    ended(simulation, spec)
    assert staged(simulation, 2)[GENERATOR] == ("pull", "not all members came")
    (record,) = [each for each in bodies(simulation, StagingRecord) if each.version == 2]
    assert record.end_ns - begun_ns == 5 * S


def test_a_member_that_stands_still_pulls_when_it_goes_on() -> None:
    spec = job(num_global_steps=3, publish_timeout_s=3.0)
    simulation = cluster(spec)
    until_told(simulation, 2)
    simulation.freeze(OTHER, 8 * S)
    ended(simulation, spec)
    assert staged(simulation, 2)[GENERATOR][0] == "pull"
    assert last_state(simulation) == ("completed", "")


def test_who_joins_late_pulls_until_the_next_version() -> None:
    spec = job(num_global_steps=4)
    simulation = cluster(spec)
    until_told(simulation, 1)
    late = "n/generator/2"
    simulation.connect(Slot(name=late, role="generator"))
    ended(simulation, spec)
    assert staged(simulation, 1)[late] == ("pull", "")
    assert staged(simulation, 2) == dict.fromkeys((GENERATOR, OTHER, late), ("broadcast", ""))
    assert len([each for each in places(simulation, 1) if each is not None]) == 3


def test_a_driver_that_restarts_in_the_middle_does_not_broadcast_again() -> None:
    spec = job(num_global_steps=3, publish_timeout_s=5.0)
    simulation = cluster(spec)
    until_told(simulation, 2)
    simulation.restart_driver(100 * MS)
    ended(simulation, spec, retold=True)
    assert len([each for each in places(simulation, 2) if each is not None]) == 3
    assert last_state(simulation) == ("completed", "")


def test_a_trainer_that_dies_in_the_middle_leaves_nobody_waiting_for_ever() -> None:
    spec = job(num_global_steps=3, publish_timeout_s=5.0)
    simulation = cluster(spec)
    until_told(simulation, 2)
    simulation.kill(TRAINER, back_ns=2 * S)
    ended(simulation, spec)
    assert last_state(simulation) == ("completed", "")
    epochs = [each.broadcast.epoch for each in told(simulation) if each.broadcast]
    assert epochs == sorted(epochs), "a version of a new incarnation has an epoch of its own"


def test_workers_that_the_trainer_does_not_reach_pull_and_that_is_said_once() -> None:
    spec = job(num_global_steps=3)
    elsewhere = Slot(name="b/generator/0", role="generator")
    simulation = ended(cluster(spec, PAIR[0], elsewhere, SENDER), spec)
    assert staged(simulation, 2) == {GENERATOR: ("broadcast", ""), elsewhere.name: ("pull", "")}
    (notice,) = [each for each in bodies(simulation, Notice) if elsewhere.name in each.message]
    assert "no `interface` is set in [trainer] of the settings of n," in notice.message


def test_workers_with_interfaces_are_reached_on_any_box() -> None:
    spec = job(num_global_steps=3)
    open_to_all = replace(SENDER, interface="10.0.0.1")
    elsewhere = Slot(name="b/generator/0", role="generator", interface="10.0.0.2")
    simulation = ended(cluster(spec, PAIR[0], elsewhere, open_to_all), spec)
    assert staged(simulation, 2) == {GENERATOR: ("pull", ""), elsewhere.name: ("broadcast", "")}
    (notice,) = [each for each in bodies(simulation, Notice) if f"by {GENERATOR}" in each.message]
    assert "no `interface` is set in [generator] of the settings of n," in notice.message
