"""How many events a second the decision core takes: `python -m benchmarks.core_throughput [--profile]`.

A cluster in virtual time makes the journal; only its replay on a fresh core is timed, on one thread. A driver of a
real cluster sees a heartbeat a second of each worker and a few results a second.
"""

import argparse
import cProfile
import gc
import pstats
import sys
import time
from dataclasses import dataclass

from broker.core import Core
from broker.harness import Simulation
from broker.harness_driver import Batch
from broker.harness_engine import Slot
from broker.harness_times import Times
from broker.spec import EvalRules, JobSpec, RolloutRules
from digend.wire.tasks import Prompt

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """B micro-batches of one group of K samples, on so many generators and reward processes."""

    name: str
    num_micro_batches: int
    samples: int
    generators: int
    rewards: int = 0
    steps: int = 3
    strategy: str = "always"


CASES = (
    Case("demo", 6, 24, 1, steps=20),
    Case("B = 64", 64, 24, 8),
    Case("B = 256", 256, 24, 8),
    Case("B = 256, dedicated", 256, 24, 8, rewards=4),
    Case("B = 1024", 1024, 8, 16, steps=1),
    Case("256 generators", 64, 512, 256, steps=1),
)


def journal(case: Case) -> list[Batch]:
    """What a driver of such a cluster would have journalled."""
    spec = JobSpec(
        id="bench",
        name=case.name,
        config="{}",
        seed=0,
        num_global_steps=case.steps,
        updates_per_rollout=1,
        prompts=tuple(Prompt(uid=f"p{at}", text=f"prompt {at}") for at in range(case.num_micro_batches)),
        prompts_per_rollout=case.num_micro_batches,
        samples_per_prompt=case.samples,
        micro_batch_groups=1,
        partition="gap",
        strategy=case.strategy,
        scoring="dedicated" if case.rewards else "colocated",
        generators=None,
        num_timesteps=8,
        rules=RolloutRules(noise_level=0.7, window_size=3, window_lo=0, window_hi=3),
        evaluation=EvalRules(prompts=(), samples=1, during_samples=1, every=0, seed=0, enabled=False),
        checkpoint_every=0,
        deterministic=False,
        lease_s=60.0,
        reward_retries=1,
        task_retries=2,
        max_skipped_steps=3,
    )
    slots = [Slot(name=f"n/generator/{at}", role="generator") for at in range(case.generators)]
    slots += [Slot(name=f"n/reward/{at}", role="reward") for at in range(case.rewards)]
    slots += [Slot(name="n/trainer/0", role="trainer")]
    times = Times(generate=400 * MS, assist=900 * MS, update=300 * MS, score=20 * MS, commit=100 * MS, stage=50 * MS)
    simulation = Simulation(times, slots, persist_ns=100 * MS)
    simulation.submit(spec)
    simulation.run()
    return simulation.batches


def replay(batches: list[Batch]) -> float:
    """Seconds of one processor that a fresh core takes. The journal in memory is nothing that a driver has."""
    core = Core()
    gc.collect()
    gc.freeze()
    start = time.process_time()
    for batch in batches:
        core.step(batch.now_ns, batch.events)
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true", help="where the time goes, of each case")
    arguments = parser.parse_args()
    print(f"{'case':22} {'batches':>8} {'events':>8} {'events/s':>9} {'us/batch':>9}")
    for case in CASES:
        batches = journal(case)
        events = sum(len(batch.events) for batch in batches)
        seconds = min(replay(batches) for _ in range(3))
        print(
            f"{case.name:22} {len(batches):8} {events:8} {events / seconds:9.0f} {1e6 * seconds / len(batches):9.1f}",
            flush=True,
        )
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(replay, batches)
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)
    return 0


if __name__ == "__main__":
    sys.exit(main())
