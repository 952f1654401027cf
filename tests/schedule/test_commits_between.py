"""One rollout that feeds several global steps: commits between its updates, as planned and as they come."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from broker.harness import Simulation
from broker.harness_times import Times as Durations
from broker.schedule.moves import back, finish, tag, update
from broker.schedule.planned import best
from broker.schedule.snapshot import Model, Running, Snapshot
from broker.schedule.supplies import supply_of
from broker.schedule.supply import Supply
from broker.schedule.times import Times
from digend.wire.records import Decision
from tests.broker.support import MS, job, prompts, slots
from tests.schedule.test_live import makespans

KINDS = ("direct", "colocated", "dedicated")


def situation(rng: Random, kind: str, most: int) -> tuple[Model, Snapshot]:
    """In which all of the rollout's work is somewhere on its way, and one to three commits are to come."""
    times = Times(
        generate=rng.randint(1, 20),
        assist=rng.randint(1, 20),
        update=rng.randint(1, 20),
        score=0 if kind == "direct" else rng.randint(1, 20),
        switch=rng.choice((0, rng.randint(1, 9))),
        commit=rng.randint(0, 40),
    )
    servers = rng.randint(1, 2) if kind == "dedicated" else 0
    scoring = kind == "colocated" and rng.random() < 0.4
    snapshot = Snapshot(
        pending=rng.randint(0, most),
        queued=rng.randint(0, 2) if kind != "direct" else 0,
        ready=rng.choice((0, 0, 1, 3)),
        generator=Running(rng.randint(1, times.score if scoring else times.generate), scoring),
        servers=tuple(Running(rng.randint(1, times.score), True) for _ in range(servers)),
        generating=rng.random() < 0.5,
    )
    left = snapshot.remaining
    commits = tuple(sorted(rng.sample(range(1, left), min(left - 1, rng.randint(1, 3)))))
    return Model(times=times, servers=servers), replace(snapshot, commits=commits)


def one_by_one(supply: Supply, now: int, generating: bool, times: Times, commits: Sequence[int]) -> int:
    """The trainer only updates and commits."""
    for done in range(1, supply.remaining() + 1):
        if not supply.ready:
            now = supply.wait()
        now, generating = update(supply, now, generating, times), False
        if done in commits:
            now += times.commit
            supply.advance(now)
    return now


def shortest(supply: Supply, now: int, generating: bool, times: Times, commits: Sequence[int], done: int = 0) -> int:
    """Over all orders of the trainer's tasks."""
    if not supply.remaining():
        return now
    ends = []
    if supply.pending:
        then = supply.copy()
        at = tag(then, now, generating, times)
        ends.append(shortest(then, at, True, times, commits, done))
    then, at = supply.copy(), now
    if not then.ready:
        at = then.wait()
    at = update(then, at, generating, times)
    if done + 1 in commits:
        at += times.commit
        then.advance(at)
    ends.append(shortest(then, at, False, times, commits, done + 1))
    return min(ends)


@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_form_is_what_happens_one_by_one(kind: str) -> None:
    rng = Random(kind)
    for _ in range(300):
        model, snapshot = situation(rng, kind, 8)
        times = model.times
        told = finish(supply_of(model, snapshot), 0, back(snapshot.generating, times), times, snapshot.commits)
        assert told == one_by_one(supply_of(model, snapshot), 0, snapshot.generating, times, snapshot.commits), snapshot


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_is_the_best_of_all_orders(kind: str) -> None:
    rng = Random(f"orders {kind}")
    for _ in range(60):
        model, snapshot = situation(rng, kind, 4)
        plan = best(model, snapshot)
        supply = supply_of(model, snapshot)
        assert plan.end == shortest(supply, 0, snapshot.generating, model.times, snapshot.commits), (model, snapshot)


def ran(strategy: str, micro_batches: int, updates: int, **milliseconds: int) -> Simulation:
    spec = job(
        prompts=prompts(micro_batches),
        prompts_per_rollout=micro_batches,
        num_global_steps=4 * updates,
        updates_per_rollout=updates,
        strategy=strategy,
        checkpoint_every=0,
    )
    durations = Durations(**{name: time * MS for name, time in milliseconds.items()})
    simulation = Simulation(durations, slots(1), torpid_s=1e6, lost_s=2e6)
    simulation.submit(spec)
    simulation.run()
    return simulation


@pytest.mark.parametrize("strategy", ["planned", "bts"])
@pytest.mark.parametrize(
    ("micro_batches", "updates", "milliseconds"),
    [
        (8, 2, {"generate": 40, "assist": 102, "update": 24, "commit": 242}),
        (2, 2, {"generate": 120, "assist": 90, "update": 115, "score": 22, "switch": 17, "commit": 240}),
        (3, 3, {"generate": 30, "assist": 106, "update": 30, "score": 38, "switch": 17, "commit": 270}),
    ],
)
def test_no_tag_for_what_a_commit_leaves_time_for(
    strategy: str, micro_batches: int, updates: int, milliseconds: dict[str, int]
) -> None:
    """Where the search does not know of the commits, it takes longer than `never`."""
    told = ran(strategy, micro_batches, updates, **milliseconds)
    never = ran("never", micro_batches, updates, **milliseconds)
    assert sum(makespans(told)[2 * updates :]) <= sum(makespans(never)[2 * updates :])
    searched = [
        record.body
        for record in told.records["j1"]
        if isinstance(record.body, Decision) and record.body.end_us is not None
    ]
    assert searched
