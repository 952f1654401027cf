"""A small job is broken at each of its instants, in every way: it completes, and every sample counts once."""

from collections.abc import Callable

import pytest

from broker.harness import Simulation
from broker.spec import JobSpec
from digend.wire.records import RestartRecord, StepRecord
from tests.broker.audit import audit, check_seconds
from tests.broker.support import (
    GENERATOR,
    REWARD,
    TRAINER,
    S,
    bodies,
    evaluation,
    job,
    last_state,
    prompts,
    simulate,
)

Small = tuple[JobSpec, int, int]
"""A job, and how many generators and reward processes it has."""

SMALL: dict[str, Small] = {
    "gap": (job(evaluation=evaluation(2, every=1), prompts_per_rollout=2), 2, 0),
    "tag": (job(strategy="always", checkpoint_every=0, prompts_per_rollout=3), 1, 0),
    "tag in a pool": (job(strategy="always", checkpoint_every=0, prompts_per_rollout=3, num_global_steps=1), 2, 0),
    "probe": (job(strategy="planned", checkpoint_every=0, prompts_per_rollout=3, num_global_steps=1), 2, 0),
    "two updates": (job(updates_per_rollout=2, num_global_steps=2, micro_batch_groups=2, partition="batch"), 2, 0),
    "dedicated": (job(scoring="dedicated", partition="naive", checkpoint_every=2), 1, 2),
    "colocated": (job(generators=(), prompts_per_rollout=2, evaluation=evaluation(1)), 0, 0),
    "deterministic": (job(deterministic=True, prompts_per_rollout=2, num_global_steps=1), 2, 0),
    "stale": (job(strategy="always", staleness=0.5, num_global_steps=3, prompts_per_rollout=2), 1, 0),
}

Break = Callable[[Simulation], None]


def broken_at_every_instant(small: Small, fault: Break) -> list[Simulation]:
    """One run for each batch of the undisturbed run up to that in which the job ends, the fault before it."""
    spec = small[0]
    undisturbed = simulate(*small)
    undisturbed.run()
    num_batches = len(undisturbed.batches)
    undisturbed.settle()
    audit(undisturbed, spec)
    check_seconds(undisturbed, spec, list(undisturbed.shells))
    runs = []
    for at in range(1, num_batches):
        simulation = simulate(*small)
        for _ in range(at):
            simulation.step()
        fault(simulation)
        simulation.run(limit_ns=1000 * S)
        simulation.settle()
        assert last_state(simulation) == ("completed", ""), f"broken before batch {at}"
        runs.append(simulation)
    return runs


def check(runs: list[Simulation], spec: JobSpec, retold: bool = False) -> None:
    for at, simulation in enumerate(runs, start=1):
        try:
            audit(simulation, spec, retold=retold)
        except AssertionError as error:
            raise AssertionError(f"broken before batch {at}: {error}") from error


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "silently"])
@pytest.mark.parametrize(
    "name", ["gap", "tag", "tag in a pool", "probe", "two updates", "dedicated", "deterministic", "stale"]
)
def test_generator_killed(name: str, noticed: bool) -> None:
    spec = SMALL[name][0]
    runs = broken_at_every_instant(SMALL[name], lambda run: run.kill(GENERATOR, 2 * S, noticed=noticed))
    check(runs, spec)
    for simulation in runs:
        assert {record.incarnation for record in bodies(simulation, StepRecord)} == {0}


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "silently"])
@pytest.mark.parametrize("name", list(SMALL))
def test_trainer_killed(name: str, noticed: bool) -> None:
    """A new incarnation, from the newest checkpoint; every record of a step says which."""
    spec = SMALL[name][0]
    runs = broken_at_every_instant(SMALL[name], lambda run: run.kill(TRAINER, 2 * S, noticed=noticed))
    check(runs, spec)
    for simulation in runs:
        restarts, steps = bodies(simulation, RestartRecord), bodies(simulation, StepRecord)
        if not restarts and not noticed:
            continue  # the job was over before anybody missed the trainer
        (restart,) = restarts
        assert restart.incarnation == 1
        later = [step for step in steps if step.incarnation == 1]
        assert [step.incarnation for step in steps] == sorted(step.incarnation for step in steps)
        assert [step.global_step for step in later] == list(range(restart.global_step + 1, spec.num_global_steps + 1))


def test_reward_killed() -> None:
    small = SMALL["dedicated"]
    check(broken_at_every_instant(small, lambda run: run.kill(REWARD, 3 * S)), small[0])


@pytest.mark.parametrize("unreleased", [False, True], ids=["after", "before its commands are sent"])
@pytest.mark.parametrize("name", ["gap", "two updates", "dedicated", "colocated", "stale"])
def test_driver_killed(name: str, unreleased: bool) -> None:
    """Nothing is lost but what never reached a worker; no trainer is restarted."""
    spec = SMALL[name][0]
    runs = broken_at_every_instant(SMALL[name], lambda run: run.restart_driver(S, unreleased=unreleased))
    check(runs, spec, retold=True)
    for simulation in runs:
        assert not bodies(simulation, RestartRecord)
        assert [step.global_step for step in bodies(simulation, StepRecord)] == list(
            range(1, spec.num_global_steps + 1)
        )


@pytest.mark.parametrize("victim", [GENERATOR, TRAINER])
@pytest.mark.parametrize("seconds", [2, 8, 30], ids=["short", "torpid", "lost"])
def test_worker_stopped_and_continued(victim: str, seconds: int) -> None:
    """SIGSTOP at each instant: unnoticed, torpid, or lost and back as a new session of the same process."""
    spec = job(prompts=prompts(2), prompts_per_rollout=2, num_global_steps=1, evaluation=evaluation(1))
    runs = broken_at_every_instant((spec, 2, 0), lambda run: run.freeze(victim, seconds * S))
    check(runs, spec, retold=True)
    if seconds < 15:
        assert not any(bodies(simulation, RestartRecord) for simulation in runs)


@pytest.mark.parametrize("victim", [GENERATOR, TRAINER])
def test_network_cut_while_the_worker_works_on(victim: str) -> None:
    """Its results come late, under a session that is over and then under a new one: acknowledged, and freed."""
    spec = job(prompts=prompts(2), prompts_per_rollout=2, num_global_steps=1, evaluation=evaluation(1))
    check(broken_at_every_instant((spec, 2, 0), lambda run: run.cut(victim, 20 * S)), spec, retold=True)
