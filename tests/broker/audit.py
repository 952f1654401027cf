"""What must hold of any run, whatever happened in it. `audit` raises AssertionError with what does not."""

from collections import Counter
from itertools import pairwise

from broker.harness import Simulation
from broker.harness_world import OptimizerStep
from broker.plan import plan_rollout
from broker.spec import JobSpec
from digend.wire.records import IdleRecord, JobState, StepRecord, TaskRecord, WorkerState

Key = tuple[int, str, int, int]
"""(micro-batch, prompt, sample, timestep)"""


def audit(simulation: Simulation, spec: JobSpec, *, masked: bool = False, retold: bool = False) -> None:
    """`masked`: the run has samples without a reward, so that a step may be made of less than was planned. `retold`: a
    driver was restarted, or messages came twice: a blob may be freed again."""
    check_ledger(simulation, spec, masked)
    check_lineage(simulation, spec)
    check_blobs(simulation, spec, retold)
    check_leftovers(simulation)
    assert simulation.replay() is None


def planned_pairs(spec: JobSpec, global_step: int) -> Counter[Key]:
    """What a global step trains on where nothing is masked, dropped or left out by best-of-N."""
    rollout, updates = global_step // spec.updates_per_rollout, spec.updates_per_rollout
    plans = plan_rollout(spec, rollout)
    return Counter(
        (index, group.prompt.uid, sample.index, timestep)
        for index, groups in enumerate(plans)
        if rollout * updates + index * updates // len(plans) == global_step
        for group in groups
        for sample in group.samples
        for timestep in sample.timesteps
    )


def trained_pairs(step: OptimizerStep) -> Counter[Key]:
    return Counter((pair.micro_batch, pair.prompt, pair.index, pair.timestep) for pair in step.pairs)


def steps_of(simulation: Simulation, spec: JobSpec) -> list[OptimizerStep]:
    """Every commit that a trainer carried out, kept or not."""
    return [step for step in simulation.world.ledger if step.job == spec.id]


def check_ledger(simulation: Simulation, spec: JobSpec, masked: bool = False) -> None:
    """Each (sample, timestep) at most once a commit; Z what was trained on, Z0 what was planned."""
    seen: set[tuple[int, int]] = set()
    for step in steps_of(simulation, spec):
        assert (step.incarnation, step.global_step) not in seen, "a global step was committed twice in one incarnation"
        seen.add((step.incarnation, step.global_step))
        planned, trained = planned_pairs(spec, step.global_step), trained_pairs(step)
        assert max(trained.values(), default=0) <= 1
        assert not trained - planned
        assert len(step.pairs) == step.z
        assert set(step.z0s) <= {step.z0}
        if spec.rules.best_of_n is None:
            assert step.z0 == planned.total()
        if not masked and spec.rules.best_of_n is None:
            assert trained == planned
        assert {pair.rollout for pair in step.pairs} <= {step.global_step // spec.updates_per_rollout}


def check_lineage(simulation: Simulation, spec: JobSpec) -> None:
    """Samples come from the weights they train, or from an ancestor: less than updates_per_rollout away, or one with
    staleness, and no more of those than its quota."""
    reach = max(spec.updates_per_rollout, 2 if spec.staleness else 1)
    for step in steps_of(simulation, spec):
        line = simulation.world.lineage(step.policy)
        by_micro_batch: dict[int, set[str]] = {}
        for pair in step.pairs:
            by_micro_batch.setdefault(pair.micro_batch, set()).add(pair.policy)
        for policies in by_micro_batch.values():
            assert len(policies) == 1, "a micro-batch has samples of two policies"
            assert policies <= set(line[:reach])
        if spec.staleness:
            stale = [policies for policies in by_micro_batch.values() if policies != {step.policy}]
            assert len(stale) <= spec.stale_quota
        assert len(line) == step.version + 1, "versions count the optimizer steps behind the weights"
    records = [body.body for body in simulation.records[spec.id] if isinstance(body.body, StepRecord)]
    for before, after in pairwise(records):
        if before.incarnation == after.incarnation:
            assert after.global_step == before.global_step + 1
            assert after.version == before.version + (0 if after.skipped else 1)


def check_blobs(simulation: Simulation, spec: JobSpec, retold: bool = False) -> None:
    """After the end nobody holds anything of the job, and nothing was freed twice."""
    state = simulation.core.state
    if simulation.job(spec.id).open:
        return
    kept = {ref.id for kept in state.kept for ref in kept.refs}
    left = {name: blob.kind for name, blob in simulation.world.left(spec.id).items() if name not in kept}
    assert not left, f"{len(left)} blobs were never freed: {Counter(left.values())}"
    twice = [blob for blob, times in simulation.world.freed.items() if times > 1]
    assert retold or not twice, f"freed twice: {twice}"


def check_leftovers(simulation: Simulation) -> None:
    """When no job is open, nobody is busy and no process has a model loaded."""
    state = simulation.core.state
    if any(job.open for job in state.jobs.values()):
        return
    assert not state.leases
    for shell in simulation.shells.values():
        if shell.reachable and shell.session is not None:
            assert shell.running is None
            assert not shell.waiting
            assert not shell.outcomes, f"{shell.name} keeps results that were never acknowledged"
            assert not shell.engine.loaded, f"{shell.name} was never told that the job is over"


def check_seconds(simulation: Simulation, spec: JobSpec, workers: list[str]) -> None:
    """Task and idle records of workers that were there all along tile the job's time, each idle one with a cause."""
    found = simulation.job(spec.id)
    assert found.started_ns is not None
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in workers}
    for record in simulation.records[spec.id]:
        body = record.body
        if isinstance(body, IdleRecord):
            assert body.cause
            assert body.cause != "dispatch", "idle for no reason"
        if isinstance(body, TaskRecord | IdleRecord) and body.worker in spans and body.start_ns < body.end_ns:
            spans[body.worker].append((body.start_ns, body.end_ns))
    for name, intervals in spans.items():
        edges = [found.started_ns, *(edge for span in sorted(intervals) for edge in span), found.finished_ns]
        for end, start in zip(edges[::2], edges[1::2], strict=True):
            assert end == start, f"{name}: from {end} to {start} is unaccounted for, or counted twice"


def states_of(simulation: Simulation, name: str = "j1") -> list[str]:
    return [body.body.state for body in simulation.records[name] if isinstance(body.body, JobState)]


def worker_states(simulation: Simulation, worker: str, name: str = "j1") -> list[str]:
    return [
        body.body.state
        for body in simulation.records[name]
        if isinstance(body.body, WorkerState) and body.body.worker == worker
    ]
