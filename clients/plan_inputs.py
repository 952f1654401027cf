"""From what `digenctl plan` is given to what the planner takes: the job's shape, the devices, their times.

Owns the meeting of times with node files. Decides nothing; says in `notes` what it had to assume.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.planning.devices import Device
from broker.planning.observed import Cut, Measured, measured, merged
from broker.planning.shape import Shape
from clients.run_log import RunLog
from clients.times_file import TimesConfig, WorkerTimes
from digend import plugins
from digend.config.job import JobConfig
from digend.config.node import NodeConfig
from digend.config.offload import NONE, Offload, offload_of
from digend.rl.layouts import Layout
from digend.rl.windows import draw_window, select_timesteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A worker that a node file names. `place`: the device it uses, "" where that is left to the worker; `gib`: its
    memory, as far as the file says; `offload`: what its box keeps in host memory; `interface`: where a trainer meets
    those of other boxes."""

    name: str
    role: str
    place: str = ""
    gib: float | None = None
    offload: Offload = NONE
    interface: str = ""

    @property
    def node(self) -> str:
        return self.name.partition("/")[0]


def shape_of(job: JobConfig) -> Shape:
    return Shape(
        prompts=job.data.prompts_per_rollout,
        samples=job.data.samples_per_prompt,
        groups=min(job.schedule.micro_batch_groups, job.data.prompts_per_rollout),
        updates=job.training.updates_per_rollout,
        width=width_of(job),
        staleness=job.schedule.staleness,
        dedicated=job.schedule.scoring == "dedicated",
        assisted=not job.training.deterministic,
    )


def width_of(job: JobConfig) -> int:
    """Timesteps of a forward pass: never more than are trained of a sample. As many as that may be where the trainer
    measures it."""
    trained, width = num_trained(job), job.training.timestep_width
    return trained if width == "auto" else min(width or trained, trained)


def num_trained(job: JobConfig) -> int:
    """Timesteps that are trained of a sample: a share of the window, at least one."""
    spec = plugins.algorithm_spec(job.algorithm.name)
    rules = spec.rules(spec.options.model_validate(job.algorithm.options), job)
    num_timesteps = job.sampling.num_timesteps
    if rules.ode:
        return len(select_timesteps(range(num_timesteps), rules.timestep_fraction))
    window = draw_window(num_timesteps, rules.window_size, rules.window_lo, rules.window_hi, kernel=job.sampling.kernel)
    return len(select_timesteps(window.indexes, rules.timestep_fraction))


def pairs_of(job: JobConfig) -> int:
    """(sample, timestep) pairs of a micro-batch, as many as are selected where all samples are scored."""
    spec = plugins.algorithm_spec(job.algorithm.name)
    best_of_n = spec.rules(spec.options.model_validate(job.algorithm.options), job).best_of_n
    return groups_of(job) * (best_of_n or job.data.samples_per_prompt) * num_trained(job)


def groups_of(job: JobConfig) -> int:
    """Of a micro-batch."""
    if job.schedule.partition == "naive":
        return job.data.prompts_per_rollout // job.training.updates_per_rollout
    return min(job.schedule.micro_batch_groups, job.data.prompts_per_rollout)


def speed_up(job: JobConfig, ranks: int) -> float:
    """Of a micro-batch that they generate: whole forward batches are dealt."""
    batches = -(-groups_of(job) * job.data.samples_per_prompt // job.sampling.rollout_batch)
    return batches / -(-batches // ranks)


def layout_of(job: JobConfig) -> Layout:
    training = job.training
    return Layout(ranks=training.ranks, replicas=training.num_replicas, reshard=training.reshard)


def slots_of(nodes: Sequence[NodeConfig]) -> list[Slot]:
    found: list[Slot] = []
    for node in nodes:
        for role, section in (("generator", node.generator), ("reward", node.reward)):
            for index in range(section.slots if section else 0):
                devices = section.devices if section else []
                place = devices[index] if index < len(devices) else ""
                gib = section.memory_gib if section else None
                name = f"{node.name}/{role}/{index}"
                offload = offload_of(node.generator if role == "generator" else None)
                found.append(Slot(name=name, role=role, place=_place(node, place), gib=gib, offload=offload))
        trainer = node.trainer
        for index in range(trainer.slots if trainer is not None else 0):
            place = _place(node, trainer.device_of(index) or "" if trainer is not None else "")
            gib = trainer.memory_gib if trainer is not None else None
            interface = trainer.interface if trainer is not None else ""
            name = f"{node.name}/trainer/{index}"
            found.append(Slot(name=name, role="trainer", place=place, gib=gib, interface=interface))
    return found


def _place(node: NodeConfig, device: str) -> str:
    """Processes on `cpu` have cores of their own as far as the node file says; those on one GPU share it."""
    return f"{node.name}:{device}" if device.startswith("cuda") else ""


def shared_devices(slots: Sequence[Slot]) -> list[str]:
    places: dict[str, list[str]] = {}
    for slot in slots:
        if slot.place:
            places.setdefault(slot.place, []).append(slot.name)
    return [
        f"{' and '.join(names)} share {place}: while one works the other is slower, which these times do not show"
        for place, names in places.items()
        if len(names) > 1
    ]


def from_runs(runs: Sequence[RunLog], *, as_run: bool = False) -> Measured:
    """Of one device each; `as_run`: several ranks stay what they were, one trainer."""
    return merged([measured(run.tasks, _cut(run.job, 1 if as_run else run.job.training.ranks)) for run in runs])


def _cut(job: JobConfig, ranks: int) -> Cut:
    shape = shape_of(job)
    evaluated = job.eval.num_timesteps or job.sampling.num_timesteps
    return Cut(
        samples=groups_of(job) * shape.samples,
        width=shape.width,
        evaluation=job.sampling.num_timesteps / evaluated,
        ranks=ranks,
        speed_up=speed_up(job, ranks),
    )


def from_times(times: TimesConfig, shape: Shape, slots: Sequence[Slot]) -> Measured:
    """Times of a micro-batch by pool are spread evenly over the slots of the pool, one where none is named."""
    devices = [_device(worker, shape.width) for worker in times.workers] or _pools(times, shape, slots)
    return Measured(devices=tuple(devices), commit=times.commit, switch=times.switch)


def _device(worker: WorkerTimes, width: int) -> Device:
    return Device(
        name=worker.name,
        role=worker.role,
        generate=worker.generate,
        score=worker.score,
        update=_by_width(worker.update, worker.update_sequential, width),
    )


def _by_width(update: float | None, sequential: float | None, width: int, samples: int = 1) -> dict[int, float]:
    given = {1: sequential, width: sequential if update is None and width == 1 else update}
    return {each: seconds / samples for each, seconds in given.items() if seconds is not None}


def _pools(times: TimesConfig, shape: Shape, slots: Sequence[Slot]) -> list[Device]:
    num = shape.groups * shape.samples
    generators, trainers, rewards = (_named(slots, role) for role in ("generator", "trainer", "reward"))
    pooled = None if shape.dedicated else times.score
    each = num / max(1, len(generators))
    trainer = Device(
        name=trainers[0] if trainers else "trainer",
        role="trainer",
        generate=_over(times.assist, num),
        score=None if generators else _over(pooled, num),
        update=_by_width(times.update, times.update_sequential, shape.width, num),
    )
    return [
        *(
            Device(name=name, role="generator", generate=_over(times.generate, each), score=_over(pooled, each))
            for name in generators
        ),
        trainer,
        *(Device(name=name, role="reward", score=_over(times.score, num)) for name in rewards if shape.dedicated),
    ]


def _named(slots: Sequence[Slot], role: str) -> list[str]:
    """One of each where no node file says who there is."""
    return [slot.name for slot in slots if slot.role == role] if slots else [role]


def _over(seconds: float | None, num: float) -> float | None:
    return None if seconds is None else seconds / num


def placed(known: Measured, slots: Sequence[Slot]) -> tuple[Measured, list[str]]:
    """The workers that the node files name, with their times where they have any; what was left out, in words."""
    if not slots:
        return known, []
    by_name = {device.name: device for device in known.devices}
    devices = [
        replace(by_name[slot.name], role=slot.role) if slot.name in by_name else Device(name=slot.name, role=slot.role)
        for slot in slots
    ]
    absent = [name for name in by_name if name not in {slot.name for slot in slots}]
    notes = [f"{name} has times, and no node file names it: left out" for name in absent]
    return replace(known, devices=tuple(devices)), notes


def allowed(known: Measured, generators: Sequence[str] | None) -> Measured:
    """Without the generators that the job may not use; [] (colocated) leaves all, to see what they would bring."""
    if not generators:
        return known
    kept = tuple(each for each in known.devices if each.role != "generator" or each.name in generators)
    return replace(known, devices=kept)
