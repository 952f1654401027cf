"""A plan from what a person gave: job, node files, runs or times. Ties the inputs, the planner and the memory together.

Raises what `clients.failures` knows: ConfigError, NotFound, or a usage error where times are missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from broker.planning.devices import TimesMissing
from broker.planning.observed import Measured
from broker.planning.plan import Plan, plan
from broker.planning.predictions import split
from broker.planning.shape import Placement, model_of
from broker.schedule.named import strategy_of
from clients.jobs import NotFound, name_of
from clients.plan_inputs import Slot, allowed, from_runs, from_times, placed, shape_of, shared_devices, slots_of
from clients.plan_memory import Memory, Worker, memory_of
from clients.plan_ranks import Question, RankPlan, measured_bandwidth, rank_plan, settled, together
from clients.plan_text import Check, Told
from clients.run_log import RunLog, read_run
from clients.times_file import TimesConfig
from digend.config.job import JobConfig
from digend.config.loader import load_node
from digend.config.offload import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`times` None: from `runs`. `trainer`: a worker's name, or the beginning of one. `gib`: of every device;
    `bandwidth`: bytes a second that a rank sends to the others."""

    job: JobConfig
    nodes: Sequence[str]
    runs: Sequence[str]
    times: TimesConfig | None
    times_from: str
    trainer: str | None
    size: str | None = None
    gib: float | None = None
    bandwidth: float | None = None


def planned(request: Request) -> Told:
    shape = shape_of(request.job)
    slots = slots_of([load_node(path) for path in request.nodes])
    logs = [read_run(path) for path in request.runs]
    known = from_runs(logs) if request.times is None else from_times(request.times, shape, slots)
    known, notes = placed(allowed(known, request.job.schedule.generators), slots)
    trainer = request.trainer and name_of("node", [device.name for device in known.devices], request.trainer)
    ranks = rank_plan(_question(request, slots, logs), known)
    if ranks is not None:
        known, assumed = together(known, ranks, request.job)
        notes += assumed
    try:
        made = plan(shape, known, trainer=trainer or None)
    except TimesMissing as error:
        raise _missing(error, logs) from error
    if ranks is not None and made.split is not None and made.split.placement.trainer.name == ranks.names[0]:
        ranks = settled(ranks, made.split.width)
    return Told(
        name=request.job.name,
        plan=made,
        source=f"times of {', '.join(request.runs)}" if logs else f"times: {request.times_from}",
        checks=tuple(_checks(logs)),
        memory=_memory(request, made, slots),
        ranks=ranks,
        notes=[*notes, *shared_devices(slots)],
    )


def _missing(error: TimesMissing, logs: Sequence[RunLog]) -> Exception:
    if logs:
        return NotFound(f"{', '.join(log.path for log in logs)}: {error}; a run measures once it has trained")
    return click.UsageError(str(error))


def _checks(logs: Sequence[RunLog]) -> Iterator[Check]:
    """Each run against the model of what it ran: only where that is one of the strategies, split, on-policy."""
    for log in logs:
        predicted = _predicted(log)
        if log.seconds is not None and predicted is not None:
            yield Check(run=log.path, seconds=log.seconds, predicted=predicted)


def _predicted(log: RunLog) -> float | None:
    schedule, shape = log.job.schedule, shape_of(log.job)
    known = from_runs([log], as_run=True)
    placement = _as_run(known)
    if placement is None or schedule.staleness or schedule.partition == "batch":
        return None
    naive = schedule.partition == "naive"
    num = shape.updates if naive else shape.micro_batches(shape.groups)
    whole = shape.prompts // shape.updates if naive else shape.groups
    model = model_of(placement, shape, whole, shape.width)
    return split("as run", model, num, strategy_of(schedule.strategy), shape.updates).seconds


def _as_run(known: Measured) -> Placement | None:
    """The placement of a run; None where it was colocated."""
    from broker.planning.devices import completed

    try:
        devices = completed(known.devices)
    except TimesMissing:
        return None
    trainers = [device for device in devices if device.role == "trainer"]
    generators = tuple(device for device in devices if device.role == "generator")
    if len(trainers) != 1 or not generators:
        return None
    rewards = tuple(device for device in devices if device.role == "reward")
    return Placement(
        trainer=trainers[0], generators=generators, rewards=rewards, commit=known.commit, switch=known.switch
    )


def _question(request: Request, slots: Sequence[Slot], logs: Sequence[RunLog] = ()) -> Question:
    bandwidth = request.bandwidth or measured_bandwidth(logs, request.size)
    return Question(job=request.job, slots=slots, size=request.size, gib=request.gib, bandwidth=bandwidth)


def memory_only(request: Request) -> tuple[Memory, RankPlan | None]:
    """Without times: who would work is who the node files name, or one generator and one trainer."""
    slots = slots_of([load_node(path) for path in request.nodes])
    num = sum(slot.role == "trainer" for slot in slots)
    named = {
        slot.name: Worker(role=slot.role, gib=request.gib or slot.gib, offload=slot.offload, trainers=num)
        for slot in slots
    }
    roles = ("trainer",) if request.job.schedule.generators == [] else ("generator", "trainer")
    workers = named or {role: Worker(role=role, gib=request.gib) for role in roles}
    return memory_of(request.job, workers, request.size), rank_plan(_question(request, slots))


def _memory(request: Request, made: Plan, slots: Sequence[Slot]) -> Memory:
    gib = {slot.name: slot.gib for slot in slots}
    offload = {slot.name: slot.offload for slot in slots}
    trains = made.split.placement.trainer.name if made.split else None
    workers = {
        device.name: Worker(
            role=device.role
            if device.role == "reward"
            else "trainer"
            if device.name == trains or made.split is None
            else "generator",
            gib=request.gib or gib.get(device.name),
            offload=offload.get(device.name, NONE),
            trainers=sum(slot.role == "trainer" for slot in slots),
        )
        for device in made.devices
    }
    return memory_of(request.job, workers, request.size)
