"""Stale work under the strategies that search: from any commit on, the core does what the model does from there.

Over several global steps a schedule can settle into one of several cycles, and which one depends on how it began. The
core begins without knowing any time, the model knows all; so makespans are compared from where the core stands.
"""

from random import Random

import pytest

from broker.harness import Simulation
from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup, Task
from digend.wire.records import StepRecord, TaskRecord
from tests.broker.support import MS
from tests.schedule.test_live import live, setup_of

KNOWN = 3
"""After so many global steps all times are known."""


def commits(simulation: Simulation) -> list[int]:
    return [record.at_ns // MS for record in simulation.records["j1"] if isinstance(record.body, StepRecord)]


def standing(simulation: Simulation, setup: Setup, done: int) -> Run:
    """The model in the place of the core, at the commit that ends its first `done` global steps."""
    run = Run.of(setup)
    now = commits(simulation)[done - 1]
    tasks = [record.body for record in simulation.records["j1"] if isinstance(record.body, TaskRecord)]
    own = [task for task in tasks if task.global_step == done and task.start_ns < now * MS]
    made = [task for task in own if task.task in ("generate", "assist")]
    ended = [task for task in made if task.end_ns <= now * MS]
    scores = [task for task in own if task.task == "score"]
    scored = [task for task in scores if task.end_ns <= now * MS]
    run.now, run.step, run.commits = now, done, [0] * done
    run.pending = setup.micro_batches - len(made)
    run.stale = setup.stale_quota if done + 1 < setup.steps else 0
    with_scores = setup.model.times.score > 0
    run.sq = [len(ended) - len(scores) if with_scores else 0, 0]
    run.uq = [len(scored) if with_scores else len(ended), 0]
    for task in (task for task in own if task.end_ns > now * MS):
        start, end = task.start_ns // MS, task.end_ns // MS
        running = Task(task.task, done, start, end, end - start)
        if task.task == "score" and setup.dedicated:
            run.servers[run.servers.index(None)] = running
        else:
            run.generator = running
    return run


def compare(strategy: str, kind: str, seed: str, num: int) -> None:
    rng = Random(seed)
    for _ in range(num):
        staleness = rng.choice([0.25, 0.5, 1.0])
        switch = 17 * (kind == "switch")
        setup = setup_of(rng, steps=8, dedicated=kind == "dedicated", switch=switch, staleness=staleness)
        simulation = live(setup, strategy)
        run = standing(simulation, setup, KNOWN)
        run.to_end(strategy_of(strategy))
        assert commits(simulation)[KNOWN:] == run.commits[KNOWN:], setup


@pytest.mark.parametrize("strategy", ["bts", "planned"])
@pytest.mark.parametrize("kind", ["colocated", "dedicated", "switch"])
def test_from_a_commit_on_the_core_is_the_model(strategy: str, kind: str) -> None:
    compare(strategy, kind, f"stale {strategy} {kind}", 10)


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", ["bts", "planned"])
@pytest.mark.parametrize("kind", ["colocated", "dedicated", "switch"])
def test_from_a_commit_on_the_core_is_the_model_on_many(strategy: str, kind: str) -> None:
    compare(strategy, kind, f"stale, many {strategy} {kind}", 200)
