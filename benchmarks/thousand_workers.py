"""A thousand simulated workers, ten global steps, on the real decision core under virtual time: how long it takes.

    .venv/bin/python -m benchmarks.thousand_workers [--profile]

Every micro-batch is dealt over the whole pool (GAP), so that every generator generates and scores a part of each.
Seconds are CPU time on one core, so that other load does not count.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from time import process_time

from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.harness_times import Times
from broker.spec import EvalRules, JobSpec, RolloutRules
from digend.wire.records import StepRecord, TaskRecord
from digend.wire.tasks import Prompt

MS = 1_000_000
SPEEDS = (Fraction(1), Fraction(1), Fraction(1, 2))
TIMES = Times(generate=8000 * MS, update=5000 * MS, assist=9000 * MS, score=1000 * MS, commit=2000 * MS, stage=500 * MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    workers: int
    steps: int
    micro_batches: int
    samples_per_prompt: int


def slots(num_workers: int) -> list[Slot]:
    """One trainer, the rest generators, every third of half the speed."""
    return [
        Slot(name="box/trainer/0", role="trainer"),
        *(
            Slot(name=f"box{index // 8}/generator/{index % 8}", role="generator", speed=SPEEDS[index % 3])
            for index in range(num_workers - 1)
        ),
    ]


def job(size: Size, strategy: str) -> JobSpec:
    """Micro-batches of as many whole groups as give every generator a sample."""
    groups = -(-size.workers * 3 // 2 // size.samples_per_prompt)
    num = groups * size.micro_batches
    return JobSpec(
        id="j1",
        name="thousand",
        config="{}",
        seed=1,
        num_global_steps=size.steps,
        updates_per_rollout=1,
        prompts=tuple(Prompt(uid=f"p{index}", text=f"text {index}") for index in range(num)),
        prompts_per_rollout=num,
        samples_per_prompt=size.samples_per_prompt,
        micro_batch_groups=groups,
        partition="gap",
        strategy=strategy,
        scoring="colocated",
        generators=None,
        num_timesteps=4,
        rules=RolloutRules(noise_level=0.7, window_size=2, window_lo=0, window_hi=3),
        evaluation=EvalRules(prompts=(), samples=1, during_samples=1, every=0, seed=0, enabled=False),
        checkpoint_every=0,
        deterministic=False,
        lease_s=60.0,
        staleness=0.25,
        reward_retries=1,
        task_retries=3,
        max_skipped_steps=3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--samples-per-prompt", type=int, default=16)
    parser.add_argument("--strategy", default="never")
    parser.add_argument("--score-ms", type=int, default=1000, help="of a micro-batch by the pool; 0: with the samples")
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of how long it takes")
    arguments = parser.parse_args()
    size = Size(
        workers=arguments.workers,
        steps=arguments.steps,
        micro_batches=arguments.micro_batches,
        samples_per_prompt=arguments.samples_per_prompt,
    )
    times = replace(TIMES, score=arguments.score_ms * MS)
    simulation = Simulation(times, slots(size.workers), persist_ns=0)
    simulation.submit(job(size, arguments.strategy))
    start = process_time()
    if arguments.profile:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.runcall(simulation.run)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    else:
        simulation.run()
    report(simulation, size, process_time() - start)


def report(simulation: Simulation, size: Size, seconds: float) -> None:
    bodies = [record.body for record in simulation.records["j1"]]
    steps = sum(isinstance(body, StepRecord) for body in bodies)
    tasks = Counter(body.task for body in bodies if isinstance(body, TaskRecord))
    if steps != size.steps:
        sys.exit(f"only {steps} of {size.steps} global steps: {simulation.describe()[:500]}")
    print(
        json.dumps(
            {
                "workers": size.workers,
                "global_steps": steps,
                "cpu_seconds": round(seconds, 1),
                "virtual_seconds": round(simulation.now_ns / 1e9, 1),
                "batches": len(simulation.batches),
                "tasks": dict(tasks),
            }
        )
    )


if __name__ == "__main__":
    main()
