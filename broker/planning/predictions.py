"""How long a global step takes under each schedule: what the schedule model says, and colocated in closed form.

Rows are the steps of the paper's ablation (section 5.6). Knows nothing of how a placement was chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from broker.planning.devices import Device
from broker.planning.shape import Placement, Shape, model_of
from broker.schedule.ideal import ideal
from broker.schedule.named import strategy_of
from broker.schedule.planned import best
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.spans import Timeline
from broker.strategies import Never, Static, Strategy

STALE_STEPS = 8
"""Global steps simulated where they overlap; the first and the last are left out, as they have a neighbour less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds of a global step. `ideal`: what nothing can beat with these times (None: it does not apply). `assisted`:
    micro-batches of a global step made by the trainer. `bubbles`: seconds a global step by (worker, what it waits for).
    """

    schedule: str
    seconds: float
    ideal: float | None = None
    assisted: float = 0.0
    bubbles: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def share_of_ideal(self) -> float | None:
        return None if self.ideal is None else self.ideal / self.seconds


def quickest(model: Model, micro_batches: int) -> tuple[float, int]:
    """(seconds of a global step with the best number of TAG, that number): the optimum, from one search."""
    run = Run.of(Setup(model=model, micro_batches=micro_batches))
    if model.times.assist is None:
        return model.times.seconds(run.to_end(Never())), 0
    view = run.question()
    if view is None or view.model is None or view.snapshot is None:
        raise AssertionError("the trainer is asked before a global step ends")
    plan = best(view.model, view.snapshot)
    return model.times.seconds(run.now + plan.end + model.times.commit), plan.tags


def split(name: str, model: Model, micro_batches: int, strategy: Strategy, updates: int = 1) -> Prediction:
    """One global step on its own. `updates`: into so many optimizer steps it is divided."""
    return _simulated(name, Setup(model=model, micro_batches=micro_batches), strategy, updates)


def overlapping(name: str, model: Model, micro_batches: int, staleness: float) -> Prediction:
    """A global step among others, the next one begun before it is over (TCSS)."""
    setup = Setup(model=model, micro_batches=micro_batches, steps=STALE_STEPS, staleness=staleness)
    return _simulated(name, setup, strategy_of("planned"), 1)


def _simulated(name: str, setup: Setup, strategy: Strategy, updates: int) -> Prediction:
    times, timeline = setup.model.times, Timeline()
    run = Run.of(setup, timeline=timeline)
    run.to_end(strategy)
    begin, end, steps = 0, run.now, 1
    if setup.steps > 2:
        begin, end, steps = run.commits[0], run.commits[-2], setup.steps - 2
    bubbles: dict[tuple[str, str], float] = {}
    for each in timeline.bubbles:
        ticks = min(each.end, end) - max(each.start, begin)
        if ticks > 0:
            key = each.worker, each.cause
            bubbles[key] = bubbles.get(key, 0.0) + times.seconds(ticks) / steps / updates
    return Prediction(
        schedule=name,
        seconds=times.seconds(end - begin) / steps / updates,
        ideal=float(ideal(setup.model, setup.micro_batches) * times.unit) / updates,
        assisted=sum(begin <= span.start < end for span in timeline.spans if span.label == "assist") / steps / updates,
        bubbles=bubbles,
    )


def colocated(name: str, devices: Sequence[Device], placement: Placement, shape: Shape, width: int) -> Prediction:
    """Every device generates, scores and trains the same number of samples: as slow as the slowest in each.

    Reward processes, where scoring is dedicated, work beside generation.
    """
    num = ceil(shape.num_samples / len(devices))
    making = num * max(device.generates for device in devices)
    if shape.dedicated and (servers := placement.rewards):
        making = max(making, shape.num_samples * max(server.score or 0.0 for server in servers) / len(servers))
    else:
        making += num * max(device.score or 0.0 for device in devices)
    training = num * max(device.update[width] for device in devices)
    return Prediction(schedule=name, seconds=(making + training) / shape.updates + placement.commit)


def ablation(placement: Placement, shape: Shape, groups: int, widths: tuple[int, int]) -> list[Prediction]:
    """Naive, +GAP, +TSP, +TAG, +TCSS. `widths`: timesteps of a forward pass without TSP and with."""
    num, updates = shape.micro_batches(groups), shape.updates
    sequential, wide = widths
    whole = model_of(placement, shape, groups, sequential, batches=num)
    first = model_of(placement, shape, groups, sequential)
    model = model_of(placement, shape, groups, wide)
    rows = [
        replace(split("naive", whole, 1, Never(), updates), ideal=None),
        split("+GAP", first, num, Never(), updates),
        split("+TSP", model, num, Never(), updates),
        split("+TAG", model, num, Static(quickest(model, num)[1]), updates),
    ]
    staleness = shape.staleness or USUAL_STALENESS
    if updates == 1 and int(staleness * num) > 0:
        rows.append(overlapping(f"+TCSS {staleness:g}", model, num, staleness))
    return rows


USUAL_STALENESS = 0.25
"""What +TCSS is predicted for where the job is on-policy."""
