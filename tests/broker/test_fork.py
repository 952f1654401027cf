"""A fork in the core: it begins at its parent's checkpoint, keeps a copy of its own, and goes back to that."""

from dataclasses import replace
from typing import Any

from broker.events import PauseRequested, ResumeRequested
from broker.harness import Simulation
from broker.harness_engine import Sample, Scorer, honest
from broker.spec import JobSpec
from broker.views import job_view
from digend.wire.records import CheckpointRecord, EvaluationRecord, OriginRecord, RestartRecord, StepRecord
from digend.wire.refs import CheckpointRef
from digend.wire.tasks import SampleScore
from tests.broker.audit import check_leftovers
from tests.broker.support import TRAINER, S, bodies, evaluation, finished, job, last_state

PARENT = job(num_global_steps=3, prompts_per_rollout=2)


def forked(scorer: Scorer = honest, **changes: Any) -> tuple[Simulation, JobSpec]:
    """A cluster on which j1 has ended, with its fork j2 submitted."""
    simulation = finished(PARENT, scorer=scorer)
    saved = next(body for body in bodies(simulation, CheckpointRecord) if body.global_step == 1)
    origin = CheckpointRef(job="j1", global_step=1, version=1, path=saved.path, digest=saved.digest, node="n")
    spec = replace(PARENT, id="j2", origin=origin, **changes)
    simulation.submit(spec)
    return simulation, spec


def test_it_goes_on_from_the_parents_global_step_and_version() -> None:
    simulation, _ = forked(evaluation=evaluation(1))
    simulation.run(limit_ns=1000 * S)
    simulation.settle()
    assert last_state(simulation, "j2") == ("completed", "")
    assert [(body.global_step, body.version) for body in bodies(simulation, StepRecord, "j2")] == [(2, 2), (3, 3)]
    assert [body.global_step for body in bodies(simulation, CheckpointRecord, "j2")] == [1, 2, 3]
    labels = [(body.label, body.global_step) for body in bodies(simulation, EvaluationRecord, "j2")]
    assert labels == [("before", 1), ("after", 3)]
    (origin,) = bodies(simulation, OriginRecord, "j2")
    assert (origin.parent, origin.global_step, origin.version) == ("j1", 1, 1)
    view = job_view(simulation.core.state, simulation.job("j2"))
    assert (view.parent, view.parent_step) == ("j1", 1)
    first = next(step for step in simulation.world.ledger if step.job == "j2")
    parents = [step.made for step in simulation.world.ledger if step.job == "j1" and step.global_step == 0]
    assert [first.policy] == parents, "trained from the weights that the parent had"
    check_leftovers(simulation)
    assert simulation.replay() is None


def test_one_that_makes_no_update_of_its_own_fails() -> None:
    def down(sample: Sample) -> SampleScore:
        return SampleScore(prompt=sample.prompt, index=sample.index, reward=None, components={}, failure="down")

    simulation, _ = forked(lambda sample: honest(sample) if sample.job == "j1" else down(sample))
    simulation.run(limit_ns=1000 * S)
    why = "no global step trained: no sample survived scoring (8 of 8 masked: down)"
    assert last_state(simulation, "j2") == ("failed", why)


def test_killed_before_its_first_checkpoint_it_begins_again_at_the_parents() -> None:
    simulation, _ = forked()
    simulation.run(until=lambda: "j2" in simulation.core.state.jobs and simulation.job("j2").state == "preparing")
    simulation.kill(TRAINER, S)
    simulation.run(limit_ns=1000 * S)
    (restart,) = bodies(simulation, RestartRecord, "j2")
    assert (restart.incarnation, restart.global_step) == (1, 1)
    assert [body.global_step for body in bodies(simulation, CheckpointRecord, "j2")] == [1, 2, 3]
    assert last_state(simulation, "j2") == ("completed", "")


def test_paused_before_its_first_checkpoint_it_still_keeps_a_copy() -> None:
    simulation, _ = forked(checkpoint_every=0)
    simulation.run(until=lambda: "j2" in simulation.core.state.jobs and simulation.job("j2").state == "preparing")
    simulation.ask(PauseRequested(job="j2"))
    simulation.run(until=lambda: simulation.job("j2").state == "paused")
    simulation.ask(ResumeRequested(job="j2"))
    simulation.run(limit_ns=1000 * S)
    assert [body.global_step for body in bodies(simulation, CheckpointRecord, "j2")] == [1, 3]
    assert last_state(simulation, "j2") == ("completed", "")


def test_only_a_trainer_of_the_checkpoints_node_takes_it() -> None:
    simulation, spec = forked()
    assert spec.origin is not None
    elsewhere = replace(spec, id="j3", origin=replace(spec.origin, node="m"))
    simulation.submit(elsewhere)
    simulation.run(until=lambda: "j2" in simulation.core.state.jobs and not simulation.job("j2").open)
    assert last_state(simulation, "j3") == ("queued", "no trainer of m, where its checkpoint is, is connected")


def test_inside_a_rollout_that_feeds_two_global_steps_no_checkpoint_is_made() -> None:
    simulation = finished(job(num_global_steps=5, updates_per_rollout=2, prompts_per_rollout=2, checkpoint_every=1))
    assert [body.global_step for body in bodies(simulation, CheckpointRecord)] == [2, 4, 5]
