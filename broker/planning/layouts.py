"""How a trainer's ranks could share the weights, and how wide TSP could be: what fits, and what an update then takes.

Owns the choice and the model of an update, which is simple on purpose: ranks compute equal shares of the pairs, then
exchange bytes, nothing beside anything else. A ring is assumed: of a tensor that n ranks gather or reduce, a rank sends
(n - 1) / n; of a sum that all get, twice that. Knows no model; how much memory a layout needs is handed in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from digend.rl.layouts import Layout

WORTH = 0.01
"""Times closer than this are equal: the layout that is preferred by memory alone wins."""

Needed = Callable[[Layout, int], int]
"""Bytes of a rank's device, by layout and width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The update of one micro-batch: (sample, timestep) pairs; `trained`: timesteps of a sample that are; `batch`:
    samples of a pass (`training.update_batch`). `compute`: seconds on one device by width, as far as known."""

    pairs: int
    trained: int
    batch: int
    compute: Mapping[int, float] = field(default_factory=dict)

    def share(self, ranks: int) -> int:
        """Pairs of the rank that has most."""
        return ceil(self.pairs / ranks)

    def passes(self, ranks: int, width: int) -> int:
        return ceil(self.share(ranks) / (self.batch * width))

    def widths(self, ranks: int, present: int) -> list[int]:
        """That of the job, those that were timed, and doublings, as far as a wider pass still has more pairs."""
        doubled = [1 << power for power in range(self.trained.bit_length())]
        known = sorted({*doubled, self.trained, present, *self.compute})
        known = [width for width in known if width <= self.trained]
        enough = next((width for width in known if self.passes(ranks, width) == 1), self.trained)
        return [width for width in known if width <= enough or width == present]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Bytes of the modules that learn (`weights`) and of their gradient; `experts`: how many those are, of which
    a pass runs one; `bandwidth`: bytes a second that a rank sends, None where nobody measured it."""

    weights: int
    gradient: int
    experts: int = 1
    bandwidth: float | None = None

    def sent(self, layout: Layout, passes: int) -> int:
        """Bytes that a rank sends in the update of a micro-batch."""
        shards, replicas = layout.shards, layout.replicas
        if shards == 1:
            return round(2 * self.gradient * (replicas - 1) / replicas)
        # Weights are gathered for the forward pass, and again for the backward pass where they were given back.
        gathered = 2 * passes / self.experts if layout.reshard else 1
        reduced = passes / self.experts if layout.reshard else 1
        within = (gathered * self.weights + reduced * self.gradient) * (shards - 1) / shards
        return round(within + 2 * self.gradient / shards * (replicas - 1) / replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way. `needed`, `limit`: bytes of a rank's device (limit None: not known); `sent`: bytes a rank and update.

    `compute`, `exchange`: seconds of an update, None where not known. `crosses`: its shards lie on several boxes.
    """

    layout: Layout
    width: int
    passes: int
    needed: int
    limit: int | None
    sent: int
    compute: float | None
    exchange: float | None
    crosses: bool

    @property
    def fits(self) -> bool | None:
        return None if self.limit is None else self.needed <= self.limit

    @property
    def seconds(self) -> float | None:
        return None if self.compute is None or self.exchange is None else self.compute + self.exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """Who could be ranks: the box of each, in the order of ranks. `limit`: bytes of the smallest device.

    `whole`: why weights must be whole on every rank; "" where they may be cut.
    """

    boxes: Sequence[str]
    limit: int | None = None
    whole: str = ""

    def crosses(self, layout: Layout) -> bool:
        groups = [self.boxes[first : first + layout.shards] for first in range(0, layout.ranks, layout.shards)]
        return any(len(set(group)) > 1 for group in groups)

    def counts(self) -> list[int]:
        """Sensible numbers of ranks: doublings, and all."""
        most = len(self.boxes)
        return sorted({*(1 << power for power in range(most.bit_length()) if 1 << power <= most), most})


def options(
    work: Work, exchange: Exchange, trainers: Trainers, needed: Needed, counts: Sequence[int], present: int
) -> tuple[Option, ...]:
    """All ways for these numbers of ranks, none with more than there are pairs. `present`: the job's width."""
    layouts = [each for ranks in counts if ranks <= work.pairs for each in _layouts(ranks, trainers)]
    return tuple(
        _option(layout, width, work, exchange, trainers, needed)
        for layout in layouts
        for width in work.widths(layout.ranks, present)
    )


def _layouts(ranks: int, trainers: Trainers) -> Iterator[Layout]:
    yield Layout(ranks=ranks, replicas=ranks)
    if trainers.whole:
        return
    for replicas in range(1, ranks):
        if ranks % replicas == 0:
            yield Layout(ranks=ranks, replicas=replicas, reshard=False)
            yield Layout(ranks=ranks, replicas=replicas)


def _option(layout: Layout, width: int, work: Work, exchange: Exchange, trainers: Trainers, needed: Needed) -> Option:
    passes, alone = work.passes(layout.ranks, width), work.compute.get(width)
    sent = exchange.sent(layout, passes)
    rate = exchange.bandwidth
    return Option(
        layout=layout,
        width=width,
        passes=passes,
        needed=needed(layout, width),
        limit=trainers.limit,
        sent=sent,
        compute=None if alone is None else alone * work.share(layout.ranks) / work.pairs,
        exchange=0.0 if not sent else None if rate is None else sent / rate,
        crosses=trainers.crosses(layout),
    )


def ordered(found: Sequence[Option], *, adapter: bool, present: int) -> tuple[tuple[Option, ...], bool]:
    """What fits before what does not, the best first; and whether times decided. They do where all ways have one for
    some width; else memory alone does: most ranks; with an adapter (LoRA) whole weights on every rank before shards;
    shards that stay whole through a micro-batch before others; fewer bytes sent; the largest width."""
    usable = [each for each in found if each.fits]
    timed = [each.seconds for each in usable if each.seconds is not None]
    by_time = bool(timed) and all(each.exchange is not None for each in usable)
    best = min(timed, default=0.0)

    def key(option: Option) -> tuple[object, ...]:
        preferred = (-option.layout.ranks, _kind(option.layout, adapter=adapter), option.crosses, option.sent)
        if not by_time:
            return (not option.fits, *preferred, -option.width)
        if option.seconds is None:
            return (not option.fits, True, 0.0, *preferred, -option.width)
        as_good = option.seconds <= best * (1 + WORTH)
        return (not option.fits, False, 0.0 if as_good else option.seconds, *preferred, option.width != present)

    return tuple(sorted(found, key=key)), by_time


def _kind(layout: Layout, *, adapter: bool) -> int:
    if layout.shards == 1:
        return 0 if adapter or layout.ranks == 1 else 3
    return 2 if layout.reshard else 1
