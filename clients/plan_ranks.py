"""The ranks of a job's trainer: which layouts and TSP widths fit the trainers that there are, and which to take.

Owns the meeting of a job file, node files and times with `broker.planning.layouts`. Decides nothing itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from broker.planning.devices import Device
from broker.planning.layouts import Exchange, Needed, Option, Trainers, Work, options, ordered
from broker.planning.observed import Measured
from clients.plan_inputs import Slot, groups_of, layout_of, num_trained, pairs_of, speed_up, width_of
from clients.plan_memory import GIB, Pipeline, Worker, advice_of, needed_bytes, pipeline_of, training_of, whole_only
from clients.run_log import RunLog
from digend.config.job import JobConfig
from digend.models.footprint import gradient_item, learned_numbers, weight_bytes
from digend.rl.layouts import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """`tried`: the best first. `names`: trainers in the order of ranks. `by_time`: times decided, not memory alone."""

    tried: tuple[Option, ...]
    names: tuple[str, ...]
    bandwidth: float | None
    by_time: bool
    notes: tuple[str, ...]

    @property
    def chosen(self) -> Option | None:
        """None where nothing fits, or no device's memory is known."""
        return self.tried[0] if self.tried and self.tried[0].fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`gib`: of every device, where not None. `bandwidth`: bytes a second that a rank sends."""

    job: JobConfig
    slots: Sequence[Slot]
    size: str | None
    gib: float | None
    bandwidth: float | None


def rank_plan(asked: Question, known: Measured | None = None) -> RankPlan | None:
    """None where there is one trainer and the job asks for no more, or the model is not known."""
    job = asked.job
    able, notes = _able(asked.slots)
    wanted = _wanted(job)
    if max(len(able), wanted or 1) == 1:
        return None
    try:
        model = pipeline_of(job, asked.size)
    except (OSError, ValueError):
        return None  # memory_of says why
    if wanted is not None and len(able) < wanted:
        notes += [f"training.ranks = {wanted}, and {len(able)} trainers can meet"] if asked.slots else []
        able += [Slot(name=f"trainer/{index}", role="trainer") for index in range(len(able), wanted)]
    trainers = Trainers(boxes=[slot.node for slot in able], limit=_limit(asked, able), whole=whole_only(job))
    if trainers.whole:
        notes.append(f"no shards: {trainers.whole} needs whole weights on every rank")
    present = width_of(job)
    counts = trainers.counts() if wanted is None else [wanted]
    work = _work(job, known)
    exchange = _exchange(job, model, asked.bandwidth)
    found = options(work, exchange, trainers, _needed(job, model), counts, present)
    tried, by_time = ordered(found, adapter=job.training.trainable == "lora", present=present)
    names = tuple(slot.name for slot in able)
    notes += _nothing_fits(job, model, tried)
    return RankPlan(tried=tried, names=names, bandwidth=asked.bandwidth, by_time=by_time, notes=tuple(notes))


def _nothing_fits(job: JobConfig, model: Pipeline, tried: Sequence[Option]) -> list[str]:
    if any(each.fits is not False for each in tried):
        return []
    least = min(tried, key=lambda each: each.needed)
    there = Worker(role="trainer", gib=(least.limit or 0) / GIB)
    advice = advice_of(laid_out(job, least.layout, least.width), model, there)
    return [
        f"nothing fits; least needs {least.layout.name} over {least.layout.ranks} at width {least.width}, "
        f"{least.needed / GIB:.1f} GiB: {advice}"
    ]


def _wanted(job: JobConfig) -> int | None:
    """None where the job leaves it to the plan."""
    return job.training.ranks if "ranks" in job.training.model_fields_set else None


def _able(slots: Sequence[Slot]) -> tuple[list[Slot], list[str]]:
    """Trainers that can meet, those of a box next to each other, the box with most first; and who cannot, in words."""
    boxes: dict[str, list[Slot]] = {}
    for slot in slots:
        if slot.role == "trainer":
            boxes.setdefault(slot.node, []).append(slot)
    by_size = sorted(boxes.values(), key=len, reverse=True)
    open_ones = [box for box in by_size if all(slot.interface for slot in box)]
    together = [slot for box in open_ones for slot in box]
    largest = by_size[0] if by_size else []
    chosen = together if len(together) > len(largest) else largest
    closed = [name for name, box in boxes.items() if not all(slot.interface for slot in box)]
    if len(boxes) > 1 and closed:
        return list(chosen), [f"no [trainer] interface is set on {', '.join(closed)}: no ranks with other boxes there"]
    return list(chosen), []


def _limit(asked: Question, able: Sequence[Slot]) -> int | None:
    known = [asked.gib or slot.gib for slot in able]
    least = [gib for gib in known if gib is not None]
    return int(min(least) * GIB) if least else None


def _work(job: JobConfig, known: Measured | None) -> Work:
    num, compute = groups_of(job) * job.data.samples_per_prompt, dict[int, float]()
    for device in known.devices if known is not None else ():
        if device.role == "trainer":
            for width, seconds in device.update.items():
                compute[width] = max(compute.get(width, 0.0), seconds * num)
    trained = num_trained(job)
    return Work(pairs=pairs_of(job), trained=trained, batch=job.training.update_batch, compute=compute)


def _exchange(job: JobConfig, model: Pipeline, bandwidth: float | None = None) -> Exchange:
    training, dtype = training_of(job), job.model.dtype
    return Exchange(
        weights=weight_bytes(model.components, dtype, training),
        gradient=learned_numbers(model.components, training) * gradient_item(dtype),
        experts=len(training.trainable),
        bandwidth=bandwidth,
    )


def _needed(job: JobConfig, model: Pipeline) -> Needed:
    """Bytes of a rank by layout and width."""

    @cache
    def needed(layout: Layout, width: int) -> int:
        return needed_bytes(laid_out(job, layout, width), model, "trainer")

    return needed


def laid_out(job: JobConfig, layout: Layout, width: int) -> JobConfig:
    """The job with the keys of a layout."""
    keys = {"ranks": layout.ranks, "replicas": layout.replicas, "reshard": layout.reshard, "timestep_width": width}
    return job.model_copy(update={"training": job.training.model_copy(update=keys)})


def together(known: Measured, plan: RankPlan, job: JobConfig) -> tuple[Measured, list[str]]:
    """The chosen ranks as one device, which updates at the widths that fit; and what had to be assumed, in words."""
    chosen = plan.chosen
    names = plan.names[: chosen.layout.ranks] if chosen is not None else ()
    ranks = [device for device in known.devices if device.name in names]
    if chosen is None or not ranks:
        return known, []
    num = groups_of(job) * job.data.samples_per_prompt
    same = [each for each in plan.tried if each.fits and each.layout == chosen.layout]
    update = {each.width: (each.compute + (each.exchange or 0.0)) / num for each in same if each.compute is not None}
    if not update:
        return known, []
    generate = [device.generate for device in ranks if device.generate is not None]
    merged = replace(
        ranks[0],
        generate=max(generate) / speed_up(job, chosen.layout.ranks) if generate else None,
        update=update,
    )
    others = [_only(device, update) for device in known.devices if device.name not in names]
    notes = [] if chosen.exchange is not None else [UNMEASURED]
    return replace(known, devices=(*others, merged)), notes


UNMEASURED = "what ranks exchange is not measured (--bandwidth): step times are without it"


def settled(plan: RankPlan, width: int) -> RankPlan:
    """With this width of the chosen layout, where that fits."""
    chosen = plan.chosen
    if chosen is None:
        return plan
    same = [each for each in plan.tried if each.layout == chosen.layout and each.width == width and each.fits]
    return replace(plan, tried=(*same, *(each for each in plan.tried if each not in same)))


def _only(device: Device, widths: Collection[int]) -> Device:
    return replace(device, update={width: seconds for width, seconds in device.update.items() if width in widths})


def measured_bandwidth(logs: Sequence[RunLog], size: str | None) -> float | None:
    """Of the last run whose ranks had whole weights and so exchanged nothing but gradients: bytes a second that a rank
    sent, at least, as they waited for each other in that time too. None where there is no such run."""
    for log in reversed(logs):
        gathers = [task.gather for task in log.tasks if task.task == "update" and task.gather > 0]
        layout = layout_of(log.job)
        if layout.ranks > 1 and layout.shards == 1 and gathers:
            try:
                model = pipeline_of(log.job, size)
            except (OSError, ValueError):
                continue
            return _exchange(log.job, model).sent(layout, 1) / median(gathers[1:] or gathers)
    return None
