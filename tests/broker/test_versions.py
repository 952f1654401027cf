"""Policy versions: one a micro-batch, the trainer's own where updates_per_rollout is 1; staged, swapped, retired."""

from collections import defaultdict
from dataclasses import replace

import pytest

from broker.commands import Free, RetireVersions, SendTask, StageWeights
from broker.events import WeightsStaged
from broker.harness import Simulation
from broker.harness_engine import Slot
from digend.wire.records import StepRecord
from digend.wire.tasks import CommitTask, GenerateTask, UpdateTask
from tests.broker.audit import audit, steps_of
from tests.broker.support import GENERATOR, TIMES, TRAINER, S, bodies, evaluation, finished, job, simulate
from tests.broker.test_global_step import sent


@pytest.mark.parametrize("strategy", ["never", "always", "static:2"])
def test_on_policy_every_update_has_the_trainers_version(strategy: str) -> None:
    spec = job(num_global_steps=4, strategy=strategy)
    simulation = finished(spec)
    audit(simulation, spec)
    version = 0
    for order in sent(simulation, object):
        if isinstance(order.task, UpdateTask):
            assert order.task.version == version == order.task.global_step
        if isinstance(order.task, CommitTask):
            assert order.task.version == version
            version += 1
    assert [record.stale_micro_batches for record in bodies(simulation, StepRecord)] == [0] * 4


def test_two_updates_a_rollout_are_stale_by_design_in_the_second() -> None:
    """Samples of the j-th update are j - 1 versions old, and are counted."""
    spec = job(num_global_steps=4, updates_per_rollout=2)
    simulation = finished(spec)
    audit(simulation, spec)
    versions = defaultdict(set)
    for order in sent(simulation, UpdateTask):
        assert isinstance(order.task, UpdateTask)
        versions[order.task.global_step].add(order.task.version)
    assert dict(versions) == {0: {0}, 1: {0}, 2: {2}, 3: {2}}
    assert [record.stale_micro_batches for record in bodies(simulation, StepRecord)] == [0, 2, 0, 2]
    assert [len(step.micro_batches) for step in steps_of(simulation, spec)] == [2] * 4


def test_micro_batches_are_dealt_over_the_updates_of_a_rollout_in_order() -> None:
    spec = job(num_global_steps=2, updates_per_rollout=2)
    simulation = finished(spec)
    assert [sorted(step.micro_batches) for step in steps_of(simulation, spec)] == [[0, 1], [2, 3]]


def test_no_update_before_the_commit_of_the_step_before() -> None:
    spec = job(num_global_steps=4, updates_per_rollout=2, strategy="always")
    order = [
        (task.kind, task.global_step)
        for task in (order.task for order in sent(finished(spec), object))
        if isinstance(task, UpdateTask | CommitTask)
    ]
    for step in range(1, 4):
        first = next(at for at, (kind, of) in enumerate(order) if (kind, of) == ("update", step))
        assert order.index(("commit", step - 1)) < first


def test_generators_are_told_once_of_each_version_and_work_meanwhile() -> None:
    spec = job(num_global_steps=3)
    simulation = finished(spec, 2, times=replace(TIMES, stage=3 * S))
    audit(simulation, spec)
    told = [
        (command.session, command.weights.version)
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, StageWeights)
    ]
    assert len(told) == len(set(told)) == 2 * 4


def test_nothing_is_generated_under_a_version_that_is_not_staged() -> None:
    """The engine of the harness refuses it; here it is looked at from the driver's side too."""
    simulation = finished(job(num_global_steps=3), 2, times=replace(TIMES, stage=S))
    staged: set[tuple[str, int]] = set()
    for batch in simulation.batches:
        staged |= {(event.session, event.version) for event in batch.events if isinstance(event, WeightsStaged)}
        for command in batch.commands:
            if isinstance(command, SendTask) and isinstance(command.task, GenerateTask):
                assert (command.session, command.task.version) in staged


def test_versions_that_nothing_names_are_retired_and_freed() -> None:
    spec = job(num_global_steps=4, updates_per_rollout=2)
    simulation = finished(spec)
    oldest = [
        command.oldest_version
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, RetireVersions)
    ]
    assert oldest == sorted(oldest)
    assert set(oldest) == {0, 2, 4}, "version 0 is named by the rollout's second half"
    weights = [blob for blob in simulation.world.freed if blob in _weights(simulation)]
    assert len(weights) == 5


def _weights(simulation: Simulation) -> set[str]:
    return {
        command.weights.blob.id
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, StageWeights)
    }


def test_a_version_is_not_freed_while_a_micro_batch_names_it() -> None:
    simulation = finished(job(num_global_steps=4, updates_per_rollout=2))
    freed: set[str] = set()
    for batch in simulation.batches:
        for command in batch.commands:
            if isinstance(command, StageWeights):
                assert command.weights.blob.id not in freed
            if isinstance(command, Free):
                freed |= set(command.blobs)


def test_a_micro_batch_that_was_lost_keeps_its_version_or_is_made_again_whole() -> None:
    """u = 2: in the rollout's second step the only generator with version 0 dies; the new one has version 1 only."""
    spec = job(num_global_steps=2, updates_per_rollout=2)
    simulation = simulate(spec, 1)
    simulation.run(until=lambda: bool(bodies(simulation, StepRecord)))
    simulation.kill(GENERATOR, S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    second = steps_of(simulation, spec)[1]
    assert {pair.policy for pair in second.pairs} <= {"base", second.policy}
    assert second.policy in {pair.policy for pair in second.pairs}


def test_another_encoder_means_another_rollout() -> None:
    """Embeddings are encoded again by another kind of machine: what was rolled out with the old ones is made again."""
    spec = job(num_global_steps=1, prompts_per_rollout=4)
    simulation = Simulation(
        TIMES,
        [
            Slot(name=GENERATOR, role="generator", encoder="old"),
            Slot(name="n/generator/1", role="generator", encoder="new"),
            Slot(name=TRAINER, role="trainer"),
        ],
        persist_ns=0,
    )
    simulation.submit(spec)
    simulation.at(2 * S, lambda: simulation.kill(GENERATOR))
    simulation.run(limit_ns=1000 * S)
    simulation.settle()
    audit(simulation, spec)  # every update is checked against the embedding of its rollout


def test_trainer_restart_from_a_checkpoint_that_is_not_current_makes_everything_again() -> None:
    spec = job(num_global_steps=4, checkpoint_every=2, evaluation=evaluation(1))
    simulation = simulate(spec)
    simulation.run(until=lambda: len(bodies(simulation, StepRecord)) == 3)
    simulation.kill(TRAINER, S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    steps = [(record.incarnation, record.global_step, record.version) for record in bodies(simulation, StepRecord)]
    assert steps == [(0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 3, 3), (1, 4, 4)]
    last = steps_of(simulation, spec)[-1]
    assert last.made is not None
    assert len(simulation.world.lineage(last.made)) == 5, "two steps of the first life, two of the second"


def test_trainer_restart_at_a_current_checkpoint_keeps_what_was_generated() -> None:
    spec = job(num_global_steps=1)
    simulation = simulate(spec)
    simulation.run(until=lambda: len(sent(simulation, UpdateTask)) == 3)
    generated = len(sent(simulation, GenerateTask))
    simulation.kill(TRAINER, S)
    simulation.run()
    simulation.settle()
    audit(simulation, spec)
    assert len(sent(simulation, GenerateTask)) - generated <= 2, "no more than was open anyway"
