"""Jobs and clusters small enough to break at every instant."""

from dataclasses import replace
from typing import Any

from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.harness_times import Times
from broker.spec import EvalRules, JobSpec, RolloutRules
from digend.wire.records import Record
from digend.wire.tasks import Prompt

MS = 1_000_000
S = 1_000_000_000

TIMES = Times(generate=800 * MS, update=500 * MS, assist=900 * MS, score=100 * MS, commit=200 * MS)
"""A step of a small job takes a few seconds, so that heartbeats, kills and deadlines fall inside it."""

RULES = RolloutRules(noise_level=0.7, window_size=2, window_lo=0, window_hi=3)


def prompts(num: int, prefix: str = "p") -> tuple[Prompt, ...]:
    return tuple(Prompt(uid=f"{prefix}{index}", text=f"text {prefix}{index}") for index in range(num))


def evaluation(num_prompts: int = 0, **changes: Any) -> EvalRules:
    """Disabled without prompts."""
    rules = EvalRules(
        prompts=prompts(num_prompts, "e"), samples=2, during_samples=1, every=0, seed=0, enabled=num_prompts > 0
    )
    return replace(rules, **changes)


def job(**changes: Any) -> JobSpec:
    spec = JobSpec(
        id="j1",
        name="small",
        config="{}",
        seed=1,
        num_global_steps=2,
        updates_per_rollout=1,
        prompts=prompts(4),
        prompts_per_rollout=4,
        samples_per_prompt=4,
        micro_batch_groups=1,
        partition="gap",
        strategy="never",
        scoring="colocated",
        generators=None,
        num_timesteps=4,
        rules=RULES,
        evaluation=evaluation(),
        checkpoint_every=1,
        deterministic=False,
        lease_s=30.0,
        reward_retries=1,
        task_retries=3,
        max_skipped_steps=3,
    )
    return replace(spec, **changes)


def slots(num_generators: int = 2, num_rewards: int = 0, trainer: bool = True) -> list[Slot]:
    made = [Slot(name=f"n/generator/{index}", role="generator") for index in range(num_generators)]
    made += [Slot(name=f"n/reward/{index}", role="reward") for index in range(num_rewards)]
    return made + ([Slot(name="n/trainer/0", role="trainer")] if trainer else [])


GENERATOR, TRAINER, REWARD = "n/generator/0", "n/trainer/0", "n/reward/0"


def simulate(spec: JobSpec, num_generators: int = 2, num_rewards: int = 0, **options: Any) -> Simulation:
    """A cluster with the job submitted, not yet run."""
    times = options.pop("times", TIMES)
    simulation = Simulation(
        times, slots(num_generators, num_rewards), persist_ns=options.pop("persist_ns", 0), **options
    )
    simulation.submit(spec)
    return simulation


def finished(spec: JobSpec, *args: Any, **options: Any) -> Simulation:
    """Run to the end, with everything that was on its way."""
    simulation = simulate(spec, *args, **options)
    simulation.run(limit_ns=10_000 * S)
    simulation.settle()
    return simulation


def bodies(simulation: Simulation, kind: type, name: str = "j1") -> list[Any]:
    """Record bodies of one kind, in order."""
    return [record.body for record in simulation.records.get(name, []) if isinstance(record.body, kind)]


def last_state(simulation: Simulation, name: str = "j1") -> tuple[str, str]:
    found = simulation.job(name)
    return found.state, found.reason


def times_of(records: list[Record], kind: type) -> list[int]:
    return [record.at_ns for record in records if isinstance(record.body, kind)]
