"""A plan in words for people, and as the fields of a JSON document for programs. Decides and computes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from broker.planning.devices import Device
from broker.planning.plan import Candidate, Plan
from broker.planning.predictions import Prediction
from clients.output import Output
from clients.plan_memory import Memory
from clients.plan_ranks import RankPlan
from clients.plan_ranks_text import ranks_document, tell_ranks
from clients.words import number, plural, share

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a run took, and what the model says of the settings that it ran with."""

    run: str
    seconds: float
    predicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that is said about one job."""

    name: str
    plan: Plan
    source: str
    checks: Sequence[Check]
    memory: Memory
    ranks: RankPlan | None
    notes: Sequence[str]


def document(told: Told) -> dict[str, object]:
    plan, chosen = told.plan, told.plan.split
    return {
        "job": told.name,
        "source": told.source,
        "winner": plan.winner,
        "verdict": plan.verdict,
        "split": None if chosen is None else {**_settings(plan, chosen), "quantisation_loss": plan.quantisation_loss},
        "times": None if plan.model is None else _times(plan),
        "predictions": [_row(plan, row) for row in plan.rows],
        "alternatives": [_candidate(each) for each in plan.tried],
        "devices": [_device(device) for device in plan.devices],
        "measured": [{"run": each.run, "seconds": each.seconds, "predicted": each.predicted} for each in told.checks],
        "memory": memory_document(told.memory),
        "ranks": ranks_document(told.ranks),
        "warnings": plan.warnings,
        "notes": told.notes,
    }


def _settings(plan: Plan, chosen: Candidate) -> dict[str, object]:
    return {
        **_candidate(chosen),
        "generators": [device.name for device in chosen.placement.generators],
        "rewards": [device.name for device in chosen.placement.rewards] if plan.shape.dedicated else [],
        "micro_batches": plan.shape.micro_batches(chosen.groups),
        "strategy": plan.strategy,
    }


def _candidate(chosen: Candidate) -> dict[str, object]:
    return {
        "trainer": chosen.placement.trainer.name,
        "micro_batch_groups": chosen.groups,
        "timestep_width": chosen.width,
        "seconds": chosen.seconds,
    }


def _times(plan: Plan) -> dict[str, float]:
    if plan.model is None:
        raise AssertionError("a plan without a split has no times of a micro-batch")
    times = plan.model.times
    return {name: times.seconds(ticks) for name, ticks in times.given().items()}


def _row(plan: Plan, row: Prediction) -> dict[str, object]:
    return {
        "schedule": row.schedule,
        "seconds": row.seconds,
        "over_naive": _ratio(plan.row("naive"), row),
        "over_colocated": _ratio(plan.row("colocated"), row),
        "ideal": row.ideal,
        "share_of_ideal": row.share_of_ideal,
        "assisted": row.assisted,
        "bubbles": [
            {"worker": worker, "cause": cause, "seconds": seconds} for (worker, cause), seconds in row.bubbles.items()
        ],
    }


def _ratio(base: Prediction | None, row: Prediction) -> float | None:
    return None if base is None else base.seconds / row.seconds


def _device(device: Device) -> dict[str, object]:
    return {
        "worker": device.name,
        "role": device.role,
        "generate": device.generate,
        "score": device.score,
        "update_by_width": {str(width): seconds for width, seconds in sorted(device.update.items())},
        "inferred": device.inferred,
    }


def memory_document(memory: Memory) -> dict[str, object]:
    workers = [
        {
            "worker": name,
            "device_bytes": dict(each.device),
            "host_bytes": dict(each.host),
            "device_total_bytes": each.device_bytes,
            "tag": _generating(memory, name),
        }
        for name, each in memory.workers.items()
    ]
    return {
        "workers": workers,
        "trained": memory.trained or None,
        "not_measured": memory.not_measured,
        "unknown": memory.unknown or None,
        "refusals": memory.refusals,
        "notes": memory.notes,
    }


def _generating(memory: Memory, name: str) -> dict[str, int] | None:
    each = memory.generating.get(name)
    if each is None:
        return None
    return {"shared_bytes": each.shared, "offload_bytes": each.offloaded, "waiting_bytes": each.waiting}


def tell(output: Output, told: Told) -> None:
    plan = told.plan
    shape = plan.shape
    output.line(
        f"{told.name}: {plural(shape.prompts, 'prompt')} x {plural(shape.samples, 'sample')} a rollout; {told.source}"
    )
    output.line()
    _tell_devices(output, plan.devices)
    output.line()
    for line in _advice(plan):
        output.line(line)
    output.line()
    output.table(_COLUMNS, [_cells(plan, row) for row in plan.rows])
    output.line()
    for text in [plan.verdict, *(f"warning: {text}" for text in plan.warnings), *_checks(told.checks), *told.notes]:
        output.line(text)
    output.line()
    tell_memory(output, told.memory)
    if told.ranks is not None:
        output.line()
        tell_ranks(output, told.ranks)


_COLUMNS = ("SCHEDULE", "S/STEP", "X NAIVE", "X COLOCATED", "OF IDEAL", "TAG", "TRAINER WAITS", "GENERATORS WAIT")


def _cells(plan: Plan, row: Prediction) -> list[str]:
    waits = {
        worker: sum(seconds for (who, _), seconds in row.bubbles.items() if who == worker)
        for worker in ("trainer", "generator")
    }
    split = row.ideal is not None or row.schedule == "naive"
    return [
        row.schedule,
        f"{row.seconds:.4g}",
        number(_ratio(plan.row("naive"), row), 2),
        number(_ratio(plan.row("colocated"), row), 2),
        share(row.share_of_ideal),
        f"{row.assisted:.3g}" if split else "-",
        f"{waits['trainer']:.3g}" if split else "-",
        f"{waits['generator']:.3g}" if split else "-",
    ]


def _tell_devices(output: Output, devices: Sequence[Device]) -> None:
    widths = sorted({width for device in devices for width in device.update})
    columns = ("WORKER", "GENERATE", "SCORE", *(f"UPDATE W{width}" for width in widths))
    rows = [
        [
            device.name,
            _seconds(device, "generate", device.generate),
            _seconds(device, "score", device.score),
            *(_seconds(device, "update", device.update.get(width)) for width in widths),
        ]
        for device in devices
    ]
    output.table(columns, rows)
    output.line("seconds a sample; W: timesteps of a forward pass" + _starred(devices))


def _starred(devices: Sequence[Device]) -> str:
    if not any(device.inferred for device in devices):
        return ""
    return "; * not measured in training, taken from evaluation or in proportion to other devices"


def _seconds(device: Device, what: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}{'*' if what in device.inferred else ''}"


def _advice(plan: Plan) -> Iterator[str]:
    chosen = plan.split
    if chosen is None:
        yield "plan: colocated, schedule.generators = []"
        return
    num = plan.shape.micro_batches(chosen.groups)
    generators = ", ".join(device.name for device in chosen.placement.generators)
    only = " (the fastest split, but see below)" if plan.winner == "colocated" else ""
    verb = "generates" if len(chosen.placement.generators) == 1 else "generate"
    yield f"plan: {chosen.placement.trainer.name} trains; {generators} {verb}{only}"
    yield (
        f"  schedule.micro_batch_groups = {chosen.groups}    {num} micro-batches of "
        f"{plural(chosen.groups * plan.shape.samples, 'sample')}; {share(plan.quantisation_loss)} lost to whole samples"
    )
    yield f"  training.timestep_width = {chosen.width}"
    yield f'  schedule.strategy = "{plan.strategy}"'


def _checks(checks: Sequence[Check]) -> Iterator[str]:
    for each in checks:
        yield (
            f"{each.run} took {each.seconds:.4g} s a global step (median); with its settings {each.predicted:.4g} s "
            f"are predicted ({each.predicted / each.seconds - 1:+.1%})."
        )


def tell_memory(output: Output, memory: Memory) -> None:
    if memory.unknown:
        output.line(f"memory: not measured: {memory.unknown}")
        return
    output.line(memory.trained)
    groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for name, each in memory.workers.items():
        groups.setdefault((*each.device.items(), *each.host.items()), []).append(name)
    shown = [(names, memory.workers[names[0]]) for names in groups.values()]
    columns = ("MEMORY", *(f"{names[0]} and {len(names) - 1} more" if names[1:] else names[0] for names, _ in shown))
    parts = list(dict.fromkeys(part for _, each in shown for part in each.device))
    hosts = list(dict.fromkeys(part for _, each in shown for part in each.host))
    rows = [
        *([part, *(_bytes(each.device.get(part)) for _, each in shown)] for part in parts),
        ["= device", *(_bytes(each.device_bytes) for _, each in shown)],
        *([f"host: {part}", *(_bytes(each.host.get(part)) for _, each in shown)] for part in hosts),
        *_tag_rows(memory, [names[0] for names, _ in shown]),
    ]
    output.table(columns, rows)
    for note in memory.notes:
        output.line(note)
    output.line(f"not measured: {', '.join(memory.not_measured)}")


def _tag_rows(memory: Memory, names: Sequence[str]) -> Iterator[list[str]]:
    """What TAG needs, by `schedule.tag_memory`."""
    found = [memory.generating.get(name) for name in names]
    if any(found):
        yield ["TAG, shared", *(_bytes(each.shared if each else None) for each in found)]
        yield ["TAG, offload", *(_bytes(each.offloaded if each else None) for each in found)]
        yield ["host: TAG, offload", *(_bytes(each.waiting if each else None) for each in found)]


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value} B"
