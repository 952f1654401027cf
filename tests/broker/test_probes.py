"""A probe: one sample by the trainer, the rest of its micro-batch by the generators, and what it says of TAG."""

from dataclasses import replace

import pytest

from broker.forecast import measure, model_of
from broker.harness import Simulation
from broker.state import Job, Lease, Worker
from digend.wire.records import Decision, StepRecord
from digend.wire.tasks import GenerateTask, Receipt
from tests.broker.audit import audit
from tests.broker.support import MS, TIMES, TRAINER, bodies, finished, job, prompts, simulate
from tests.broker.test_global_step import sent


def asked(simulation: Simulation, micro_batch: int) -> list[tuple[bool, int]]:
    """(by the trainer, samples) of each generate task of a micro-batch of the first global step."""
    return [
        (order.task.assist, sum(len(group.samples) for group in order.task.groups))
        for order in sent(simulation, GenerateTask)
        if isinstance(order.task, GenerateTask) and (order.task.rollout, order.task.micro_batch) == (0, micro_batch)
    ]


def probed(simulation: Simulation) -> list[int]:
    """The micro-batches of the first global step of which the trainer made a sample."""
    return [index for index in range(8) if (True, 1) in asked(simulation, index)]


@pytest.mark.parametrize("strategy", ["bts", "planned"])
@pytest.mark.parametrize("partition", ["gap", "batch"])
def test_the_trainer_makes_one_sample_and_the_generators_the_others(strategy: str, partition: str) -> None:
    spec = job(strategy=strategy, partition=partition, prompts=prompts(8), prompts_per_rollout=8, micro_batch_groups=2)
    simulation = finished(spec, 2, times=replace(TIMES, update=100 * MS))
    audit(simulation, spec)
    assert len(probed(simulation)) == 2
    for index in probed(simulation):
        made = asked(simulation, index)
        assert sum(samples for _, samples in made) == 8
        assert [samples for by_trainer, samples in made if by_trainer] == [1]
    tagged = sum(body.answer == "tag" for body in bodies(simulation, Decision))
    assert sum(body.assisted_micro_batches for body in bodies(simulation, StepRecord)) == tagged


def at_second_bubble() -> tuple[Simulation, Job, Worker, Lease]:
    """A job at its first update, and the lease of the trainer's second sample."""
    simulation = simulate(job(strategy="planned", prompts=prompts(8), prompts_per_rollout=8), 1)
    leases = simulation.core.state.leases

    def probing() -> list[Lease]:
        return [lease for lease in leases.values() if lease.label == "assist"]

    def second() -> bool:
        told = [body for body in bodies(simulation, Decision) if body.answer == "probe"]
        return len(told) == 2 and bool(probing())

    simulation.run(until=second)
    (lease,) = probing()
    simulation.run(until=lambda: any(body.answer == "update" for body in bodies(simulation, Decision)))
    return simulation, simulation.job("j1"), simulation.core.state.workers[TRAINER], lease


def test_what_a_task_costs_apart_from_its_samples_is_counted_once() -> None:
    """Of 500 ms, 300 are told to grow with samples: a micro-batch of four takes 500 + 3 x 300."""
    simulation, found, trainer, lease = at_second_bubble()
    trainer.tasks.clear()
    receipt = Receipt(total_ns=500 * MS, stages=(("fetch", 150 * MS), ("generate", 200 * MS), ("decode", 100 * MS)))
    for _ in range(2):
        measure(found, trainer, lease, receipt, 1)
    update = replace(lease, label="update", micro_batch=None)
    measure(found, trainer, update, Receipt(total_ns=70 * MS, stages=()), 1)
    model = model_of(simulation.core.state, found, trainer)
    assert model is not None
    assert model.times.assist == 1_400_000
    measure(found, trainer, lease, Receipt(total_ns=1000 * MS, stages=()), 4)
    whole = model_of(simulation.core.state, found, trainer)
    assert whole is not None
    assert whole.times.assist == 1_000_000, "what was measured on a whole micro-batch counts more"
