"""The ranks of a plan in words for people, and as the fields of a JSON document. Decides and computes nothing."""

from collections.abc import Iterator

from broker.planning.layouts import Option
from clients.output import Output
from clients.plan_memory import GIB
from clients.plan_ranks import RankPlan
from clients.words import size

GB = 1e9
_COLUMNS = ("RANKS", "LAYOUT", "WIDTH", "PASSES", "NEEDS", "SENT", "S/UPDATE", "")
"""Bytes and seconds of one micro-batch's update."""


def ranks_document(plan: RankPlan | None) -> dict[str, object] | None:
    if plan is None:
        return None
    return {
        "trainers": plan.names,
        "bandwidth": plan.bandwidth,
        "chosen_by": "time" if plan.by_time else "memory",
        "chosen": None if plan.chosen is None else _option(plan, plan.chosen),
        "alternatives": [_option(plan, each) for each in plan.tried],
        "notes": plan.notes,
    }


def _option(plan: RankPlan, each: Option) -> dict[str, object]:
    return {
        "layout": each.layout.name,
        "ranks": each.layout.ranks,
        "replicas": each.layout.replicas,
        "reshard": each.layout.reshard,
        "timestep_width": each.width,
        "passes": each.passes,
        "needed_bytes": each.needed,
        "memory_bytes": each.limit,
        "fits": each.fits,
        "sent_bytes": each.sent,
        "compute_seconds": each.compute,
        "exchange_seconds": each.exchange,
        "seconds": each.seconds,
        "crosses_boxes": each.crosses,
        "why_not": why_not(plan, each),
    }


def why_not(plan: RankPlan, each: Option) -> str:
    """ "" for the one that is chosen."""
    chosen = plan.chosen
    if each is chosen:
        return ""
    if each.limit is not None and not each.fits:
        return f"does not fit: {each.needed / GIB:.1f} GiB of {each.limit / GIB:.4g}"
    if chosen is None:
        return "the memory of a device is not known"
    if plan.by_time and each.seconds is None:
        return "no time is known at this width"
    if plan.by_time and each.seconds is not None and chosen.seconds is not None and each.seconds > chosen.seconds:
        return f"{each.seconds / chosen.seconds - 1:.0%} slower"
    if each.layout.ranks < chosen.layout.ranks:
        return "fewer ranks"
    if each.layout == chosen.layout:
        return "narrower" if each.width < chosen.width else "as fast"
    if each.crosses and not chosen.crosses:
        return "a copy of the weights lies on several boxes"
    return f"sends {each.sent / max(1, chosen.sent):.1f} times as much" if each.sent > chosen.sent else "second choice"


def tell_ranks(output: Output, plan: RankPlan) -> None:
    output.table(_COLUMNS, [_cells(plan, each) for each in _shown(plan)])
    limit = plan.tried[0].limit if plan.tried else None
    output.line(
        "of each rank and the update of a micro-batch; device memory: "
        + ("not known (--memory, or memory_gib of a node file): nothing is chosen" if limit is None else size(limit))
    )
    rate = "not measured (--bandwidth)" if plan.bandwidth is None else f"{plan.bandwidth / GB:.3g} GB/s"
    chosen = f"; chosen by {'time' if plan.by_time else 'memory alone'}" if plan.chosen else ""
    output.line(f"exchange between ranks: {rate}{chosen}")
    for note in plan.notes:
        output.line(note)
    for line in keys_of(plan):
        output.line(line)


def _shown(plan: RankPlan) -> Iterator[Option]:
    """The best width of each layout that fits, and the first one beyond, or the least that does not fit."""
    layouts = list(dict.fromkeys(each.layout for each in plan.tried))
    for layout in layouts:
        mine = [each for each in plan.tried if each.layout == layout]
        best = next((each for each in mine if each.fits or each.limit is None), None)
        if best is not None:
            yield best
        larger = [each for each in mine if each.fits is False and (best is None or each.width > best.width)]
        if larger:
            yield min(larger, key=lambda each: each.width)


def _cells(plan: RankPlan, each: Option) -> list[str]:
    return [
        str(each.layout.ranks),
        each.layout.name,
        str(each.width),
        str(each.passes),
        size(each.needed),
        size(each.sent),
        "-" if each.seconds is None else f"{each.seconds:.4g}",
        "chosen" if each is plan.chosen else why_not(plan, each),
    ]


def keys_of(plan: RankPlan) -> Iterator[str]:
    """The keys of the job file that make it so."""
    chosen = plan.chosen
    if chosen is None:
        return
    names = plan.names[: chosen.layout.ranks]
    yield f"plan: {', '.join(names)}: {chosen.layout.name}"
    yield f"  training.ranks = {chosen.layout.ranks}"
    yield f"  training.replicas = {chosen.layout.replicas}"
    if chosen.layout.shards > 1:
        yield f"  training.reshard = {'true' if chosen.layout.reshard else 'false'}"
    yield f"  training.timestep_width = {chosen.width}"
