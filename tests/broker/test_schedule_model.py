"""Makespans of the core under virtual time against a second, independent reading of docs/scheduling.md.

What the model does not know takes no time here: prepare, encode, stage. B starts at 2: of a single micro-batch the live
trainer may take hold before the generator has its new weights, an instant later, which the model cannot say.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import pytest

from broker.harness import Simulation
from broker.harness_times import Times
from digend.wire.records import StepRecord
from tests.broker.support import MS, job, prompts, slots


@dataclass(frozen=True)
class Instance:
    """The step's times in units, B micro-batches, a strategy (`never`, `always` or a number of TAGs first)."""

    b: int
    g: int
    h: int
    t: int
    s: int
    y: int
    strategy: str | int
    steps: int


def reference(case: Instance) -> list[int]:
    """The commit of each global step: one generator, colocated scoring, no switch cost."""
    now, commits = 0, []
    for _ in range(case.steps):
        now = _one_step(case, now) + case.y
        commits.append(now)
    return commits


def _one_step(case: Instance, now: int) -> int:
    pending, to_score, ready, updated, tagged, waits = case.b, 0, 0, 0, 0, False
    generator: tuple[int, str] | None = None
    trainer: tuple[int, str] | None = None
    while True:
        if generator is None and to_score:
            to_score, generator = to_score - 1, (now + case.s, "score")
        elif generator is None and pending:
            pending, generator = pending - 1, (now + case.g, "generate")
        waits = waits and not ready
        if trainer is None and (ready or pending) and not waits:
            answer = _answer(case, ready, pending, tagged)
            if answer == "update":
                ready, trainer = ready - 1, (now + case.t, "update")
            elif answer == "tag":
                pending, tagged, trainer = pending - 1, tagged + 1, (now + case.h, "tag")
            waits = answer == "wait"
        now = min(busy[0] for busy in (generator, trainer) if busy)
        for kind in [busy[1] for busy in (generator, trainer) if busy and busy[0] == now]:
            if kind == "update":
                updated += 1
            elif kind == "score" or case.s == 0:
                ready += 1
            else:
                to_score += 1
        generator = None if generator and generator[0] == now else generator
        trainer = None if trainer and trainer[0] == now else trainer
        if updated == case.b:
            return now


def _answer(case: Instance, ready: int, pending: int, tagged: int) -> str:
    if isinstance(case.strategy, int) and tagged < case.strategy and pending:
        return "tag"
    if ready:
        return "update"
    return "tag" if case.strategy == "always" else "wait"


def live(case: Instance, num_generators: int = 1) -> list[int]:
    """The same from the core, in units."""
    times = Times(generate=case.g * MS, assist=case.h * MS, update=case.t * MS, score=case.s * MS, commit=case.y * MS)
    spec = job(
        prompts=prompts(case.b),
        prompts_per_rollout=case.b,
        num_global_steps=case.steps,
        strategy=case.strategy if isinstance(case.strategy, str) else f"static:{case.strategy}",
        checkpoint_every=0,
    )
    simulation = Simulation(times, slots(num_generators), torpid_s=1e6, lost_s=2e6)
    simulation.submit(spec)
    simulation.run()
    commits = [record.at_ns for record in simulation.records["j1"] if isinstance(record.body, StepRecord)]
    assert all(commit % MS == 0 for commit in commits)
    return [commit // MS for commit in commits]


def instances(num: int, seed: int) -> list[Instance]:
    rng = Random(seed)
    return [
        Instance(
            b=rng.randint(2, 12),
            g=rng.randint(1, 12) * 10,
            h=rng.randint(1, 12) * 10 + rng.randint(0, 3),
            t=rng.randint(1, 12) * 10 + rng.randint(0, 3),
            s=rng.choice((0, 0, rng.randint(1, 40))),
            y=rng.choice((0, rng.randint(1, 50))),
            strategy=rng.choice(("never", "always", 1, 2, 5)),
            steps=rng.randint(1, 3),
        )
        for _ in range(num)
    ]


def test_reference_on_a_schedule_made_by_hand() -> None:
    # Generator: 10 20 30 | trainer (always): assists 0-10, then updates as they come.
    assert reference(Instance(b=3, g=10, h=10, t=10, s=0, y=5, strategy="always", steps=1)) == [45]
    assert reference(Instance(b=3, g=10, h=10, t=10, s=0, y=5, strategy="never", steps=1)) == [45]
    assert reference(Instance(b=4, g=10, h=10, t=2, s=0, y=0, strategy="never", steps=2)) == [42, 84]
    assert reference(Instance(b=4, g=10, h=10, t=2, s=3, y=0, strategy="never", steps=1)) == [54]


def test_makespans_equal_the_model() -> None:
    for case in instances(400, seed=5):
        assert live(case) == reference(case), case


def test_a_pool_of_equal_generators_is_one_generator_of_the_model() -> None:
    """What the trainer generates (TAG) is scored by both too."""
    for case in instances(60, seed=6):
        even = replace(case, g=case.g * 2, s=case.s * 2)
        assert live(even, num_generators=2) == reference(even), even


@pytest.mark.parametrize("strategy", ["never", "always"])
def test_dedicated_scoring_takes_the_load_off_the_generators(strategy: str) -> None:
    """Two reward processes: a micro-batch a time unit, scored while the next is generated."""
    times = Times(generate=100 * MS, assist=100 * MS, update=10 * MS, score=50 * MS)
    spec = job(scoring="dedicated", strategy=strategy, num_global_steps=1, checkpoint_every=0)
    simulation = Simulation(times, slots(1, 2), torpid_s=1e6, lost_s=2e6)
    simulation.submit(spec)
    simulation.run()
    commits = [record.at_ns for record in simulation.records["j1"] if isinstance(record.body, StepRecord)]
    # never: 4 generated by 400, the last scored by 450, updated by 460. always: the trainer makes two of the four.
    assert commits == [460 * MS if strategy == "never" else 270 * MS]


def test_a_switch_of_the_trainer_costs_time_at_the_front_of_the_task_after_it() -> None:
    times = {
        switch: Times(generate=100 * MS, assist=100 * MS, update=50 * MS, score=0, commit=10 * MS, switch=switch * MS)
        for switch in (0, 7)
    }
    commits = {}
    for switch, each in times.items():
        spec = job(strategy="static:2", num_global_steps=2, checkpoint_every=0)
        simulation = Simulation(each, slots(1), torpid_s=1e6, lost_s=2e6)
        simulation.submit(spec)
        simulation.run()
        commits[switch] = [
            record.at_ns // MS for record in simulation.records["j1"] if isinstance(record.body, StepRecord)
        ]
    # Each step: to generating, and back.
    assert commits[0] == [410, 820]
    assert commits[7] == [424, 848]
    assert all(after > before for before, after in pairwise(commits[7]))
