"""The plan of a job: colocated or split, who trains, how large a micro-batch is, how wide TSP, which strategy.

Owns the choice, and the words in which it is told when colocated wins or a rollout has too few micro-batches. What it
advises is the fastest of what it tried; the job's own settings stand where nothing is faster by `WORTH`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from broker.planning.devices import Device, TimesMissing, completed, widths_of
from broker.planning.observed import Measured
from broker.planning.predictions import Prediction, ablation, colocated, quickest
from broker.planning.shape import Placement, Shape, loss_of, model_of
from broker.schedule.ideal import ideal
from broker.schedule.snapshot import Model

WORTH = 0.01
"""A gain below this share is no reason to change a setting: measured times are not better than that."""
MUCH_LOST = 0.1
"""Share of generation lost to whole samples that is worth a word, where generation is what takes long."""
MOST_TRAINERS = 8
ALONE = "colocated with TSP, one device"
FEW_BUBBLES = 0.95
"""Share of the ideal below which a rollout has too few micro-batches."""
MOST_MICRO_BATCHES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`seconds` of a global step, on-policy, with the best number of TAG."""

    placement: Placement
    groups: int
    width: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`split`: what was chosen (None: there are not two devices); `tried`: all candidates, the fastest first.

    `rows`: predictions in the order of the ablation, then colocated. `winner`: split or colocated; `verdict`: why.
    """

    devices: tuple[Device, ...]
    shape: Shape
    split: Candidate | None
    tried: tuple[Candidate, ...]
    model: Model | None
    strategy: str
    quantisation_loss: float | None
    rows: tuple[Prediction, ...]
    winner: str
    verdict: str
    warnings: tuple[str, ...]

    def row(self, schedule: str) -> Prediction | None:
        return next((row for row in self.rows if row.schedule == schedule), None)


def plan(shape: Shape, measured: Measured, *, trainer: str | None = None) -> Plan:
    """`trainer`: the device that must train. Raises TimesMissing where no time of generation or update is known."""
    devices = completed(measured.devices)
    compute = [device for device in devices if device.role != "reward"]
    rewards = tuple(device for device in devices if device.role == "reward")
    if shape.dedicated and not rewards:
        raise TimesMissing("scoring is dedicated, and no reward process is known")
    places = [
        Placement(
            trainer=each,
            generators=tuple(other for other in compute if other is not each),
            rewards=rewards,
            commit=measured.commit,
            switch=measured.switch,
        )
        for each in _trainers(compute, trainer)
    ]
    widths = widths_of(compute)
    tried = sorted(_candidates(places, shape, widths), key=lambda each: each.seconds)
    chosen = _least_change(tried, shape)
    rows = _rows(places[0] if chosen is None else chosen.placement, shape, chosen, widths)
    model = None if chosen is None else model_of(chosen.placement, shape, chosen.groups, chosen.width)
    winner, verdict = _verdict(rows)
    return Plan(
        devices=devices,
        shape=shape,
        split=chosen,
        tried=tuple(tried),
        model=model,
        strategy=_strategy(rows),
        quantisation_loss=None if chosen is None else loss_of(chosen.placement, shape, chosen.groups),
        rows=tuple(rows),
        winner=winner,
        verdict=verdict,
        warnings=tuple(_warnings(shape, chosen, model, rows, widths)),
    )


def _trainers(compute: Sequence[Device], named: str | None) -> list[Device]:
    """Those that were seen training (else the configured ones, else all): the fastest are tried.

    An inferred time says nothing of who should train: in proportion to generation, all ways are as fast.
    """
    if named is not None:
        return [device for device in compute if device.name == named]
    seen = [device for device in compute if "update" not in device.inferred]
    able = seen or [device for device in compute if device.role == "trainer"] or compute
    by_speed = sorted(able, key=lambda device: (device.role != "trainer", device.generates))
    return by_speed[:MOST_TRAINERS]


def _candidates(places: Sequence[Placement], shape: Shape, widths: Sequence[int]) -> Iterator[Candidate]:
    for placement in places:
        if not placement.generators:
            continue
        for groups in shape.sizes():
            for width in widths:
                model = model_of(placement, shape, groups, width)
                seconds, _ = quickest(model, shape.micro_batches(groups))
                yield Candidate(placement=placement, groups=groups, width=width, seconds=seconds / shape.updates)


def _least_change(tried: Sequence[Candidate], shape: Shape) -> Candidate | None:
    """Of those that are as good as the fastest: most settings as they are."""
    if not tried:
        return None
    as_is = [each for each in tried if each.placement.trainer.role == "trainer"]
    if as_is and as_is[0].seconds <= tried[0].seconds * (1 + WORTH):
        tried = as_is
    good = [each for each in tried if each.seconds <= tried[0].seconds * (1 + WORTH)]
    return min(good, key=lambda each: 2 * (each.groups != shape.groups) + (each.width != shape.width))


def _rows(placement: Placement, shape: Shape, chosen: Candidate | None, widths: Sequence[int]) -> list[Prediction]:
    narrow = widths[0]
    wide = min(widths, key=lambda width: placement.trainer.update[width]) if chosen is None else chosen.width
    rows = [] if chosen is None else ablation(placement, shape, chosen.groups, (narrow, wide))
    rows.append(colocated("colocated", placement.devices, placement, shape, narrow))
    rows.append(colocated("colocated with TSP", placement.devices, placement, shape, wide))
    if len(placement.devices) > 1:
        alone = [colocated(ALONE, [device], placement, shape, wide) for device in placement.devices]
        rows.append(min(alone, key=lambda row: row.seconds))
    return rows


def _strategy(rows: Sequence[Prediction]) -> str:
    times = {row.schedule: row.seconds for row in rows}
    return "planned" if times.get("+TAG", 0.0) < times.get("+TSP", 0.0) else "never"


def _verdict(rows: Sequence[Prediction]) -> tuple[str, str]:
    times = {row.schedule: row.seconds for row in rows}
    together, alone = times["colocated with TSP"], times.get(ALONE)
    if "+TAG" not in times or alone is None:
        return "colocated", "Colocated: there is one device, which has to generate and to train in turn."
    separate = times["+TAG"]
    if alone <= separate:
        return (
            "colocated",
            f"Colocated wins: the fastest device alone takes {alone:.4g} s a global step, split over all it takes "
            f"{separate:.4g} s. Let it be the trainer, and set schedule.generators = [].",
        )
    if together < separate:
        return (
            "colocated",
            f"Colocated wins if it scales: over all devices, and perfectly, it takes {together:.4g} s a global step, "
            f"split it takes {separate:.4g} s. Split is the faster one where colocated reaches less than "
            f"{_percent(together / separate)} of perfect scaling, and the fastest that runs here: a colocated job "
            f"has one device, and takes {alone:.4g} s.",
        )
    return (
        "split",
        f"Split wins: {separate:.4g} s a global step; colocated takes {together:.4g} s over all devices if it scales "
        f"perfectly, {alone:.4g} s on the fastest device alone.",
    )


def _warnings(
    shape: Shape, chosen: Candidate | None, model: Model | None, rows: Sequence[Prediction], widths: Sequence[int]
) -> Iterator[str]:
    if 1 not in widths:
        yield (
            "no time of an update without TSP is known (training.timestep_width = 1): naive, +GAP and colocated are "
            "predicted with TSP."
        )
    if chosen is None or model is None:
        return
    num = shape.micro_batches(chosen.groups)
    if (reached := _share(model, num)) < FEW_BUBBLES:
        enough = next((n for n in _doubled(num) if _share(model, n) >= FEW_BUBBLES), None)
        text = (
            f"{num} micro-batches a rollout are too few to hide bubbles: {_percent(reached)} of the ideal is reached."
        )
        if enough is not None:
            text += f" {enough} would reach {_percent(_share(model, enough))} (data.prompts_per_rollout"
            text += f" = {enough * chosen.groups})."
        stale = [row for row in rows if row.schedule.startswith("+TCSS")]
        on_policy = next(row.seconds for row in rows if row.schedule == "+TAG")
        if stale and stale[0].seconds < on_policy * (1 - WORTH):
            share = stale[0].schedule.removeprefix("+TCSS ")
            text += f" schedule.staleness = {share} would take {_percent(stale[0].seconds / on_policy)} of the time."
        yield text
    loss = loss_of(chosen.placement, shape, chosen.groups)
    if loss > MUCH_LOST and model.times.generate > model.times.update:
        yield (
            f"{_percent(loss)} of generation is lost because samples are whole: {chosen.groups * shape.samples} "
            f"samples on {len(chosen.placement.generators)} generators. Another number would fit their speeds better."
        )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _share(model: Model, micro_batches: int) -> float:
    seconds, _ = quickest(model, micro_batches)
    return float(ideal(model, micro_batches) * model.times.unit) / seconds


def _doubled(num: int) -> Iterator[int]:
    while num < MOST_MICRO_BATCHES:
        num *= 2
        yield num
