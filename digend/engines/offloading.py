"""Training state in host memory while the trainer generates (TAG), so that both need not fit on the device at once.

Owns where that state lies: optimizer state, gradients, float32 masters, and copies of the weights that no rollout
uses. It waits in page-locked memory where the device is a GPU, in plain memory elsewhere; that memory is kept for the
next time. The module itself stays: rollout and update share it. Must not know who asks for room, nor why.

Invariants: all of it is on the device or all of it in host memory, also where memory runs out halfway: nothing is let
go before every copy is made. A tensor stays the object that it is, only where its values lie changes, so that whoever
holds one (the optimizer, the moving average) notices nothing. What comes back is to the bit what left.

Tested on CPUs; no GPU has seen it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from digend.engines.arrays import to_array
from digend.engines.jobs import Job
from digend.engines.masters import Masters
from digend.engines.policy import OLD, Policy
from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.tensors import own_part
from digend.engines.training import Trainer
from digend.wire.tasks import OFFLOAD, RESTORE, EncodeTask, GenerateTask, ScoreTask, TaskBody
from digend.wire.tensors import digest_of, manifest_of

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


class Offloading:
    """`state`: gives the tensors by name as they are now. `verify`: compare checksums of all of it, before and after.

    `away`: bytes that wait in host memory, 0 where the state is on the device.
    """

    def __init__(self, device: torch.device, state: Callable[[], Mapping[str, Tensor]], *, verify: bool) -> None:
        self._device = device
        self._state = state
        self._verify = verify
        self._digest = ""
        self._away: dict[str, Tensor] = {}
        self._spare: dict[Layout, list[Tensor]] = {}

    @property
    def away(self) -> int:
        return sum(tensor.nbytes for tensor in self._away.values())

    def offload(self, context: Context) -> None:
        """Into host memory; nothing where it is there already. Raises torch.OutOfMemoryError or TaskFault with all of
        it still on the device."""
        if self._away:
            return
        tensors = dict(self._state())
        with context.stage("allocate"):  # most of it once only: no part of what a switch takes
            hosts = [self._host(tensor) for tensor in tensors.values()]
        with context.stage(OFFLOAD):
            if self._verify:
                self._digest = checksum(tensors)
            self._move(tensors, hosts)
            self._away = tensors

    def restore(self, context: Context) -> None:
        """Back to the device; nothing where it is there. Raises torch.OutOfMemoryError with all of it still in host
        memory, TaskFault("weights") where something came back otherwise than it left."""
        if not self._away:
            return
        with context.stage(RESTORE):
            tensors = self._away
            hosts = [tensor.data for tensor in tensors.values()]
            self._move(tensors, [torch.empty_like(host, device=self._device) for host in hosts])
            self._away = {}
            for host in hosts:
                self._spare.setdefault(_layout(host), []).append(host)
            if self._verify and checksum(tensors) != self._digest:
                raise TaskFault("weights", "training state came back from host memory otherwise than it left")

    def _move(self, tensors: Mapping[str, Tensor], places: Iterable[Tensor]) -> None:
        """Let each tensor's values lie in its place, once all are copied."""
        into = list(places)
        for tensor, place in zip(tensors.values(), into, strict=True):
            place.copy_(tensor.data, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        for tensor, place in zip(tensors.values(), into, strict=True):
            tensor.data = place

    def _host(self, tensor: Tensor) -> Tensor:
        """Memory of an earlier time, or new."""
        known = self._spare.get(_layout(tensor))
        if known:
            return known.pop()
        try:
            # Zeros, so that its pages are there before they are needed.
            return torch.zeros_like(tensor.data, device="cpu", pin_memory=self._device.type == "cuda")
        except RuntimeError as error:
            raise TaskFault("out_of_memory", f"host memory for training state: {error}", retry=True) from error


def offloading_of(job: Job, trainer: Trainer) -> Offloading:
    """Of a trainer's job, by its job file."""
    device = job.model.device
    return Offloading(
        device,
        lambda: training_state(job.policy, trainer.masters, trainer.optimizer, device),
        verify=job.config.schedule.tag_checksums,
    )


def needs_training_state(task: TaskBody) -> bool:
    """Whether a task of a trainer reads what is offloaded; an evaluation samples with an average of the weights."""
    if isinstance(task, GenerateTask):
        return task.purpose == "evaluate"
    return not isinstance(task, EncodeTask | ScoreTask)


def _layout(tensor: Tensor) -> Layout:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def training_state(
    policy: Policy, masters: Masters, optimizer: torch.optim.Optimizer, device: torch.device
) -> dict[str, Tensor]:
    """What is on the device and only training needs, by name: neither the weights nor what draws samples in their
    place."""
    needed = {id(each) for each in (*policy.parameters.values(), *policy.copies.get(OLD, {}).values())}
    found: dict[str, Tensor] = {}
    for name, tensor in _candidates(policy, masters, optimizer):
        if id(tensor) not in needed and tensor.device == device:
            needed.add(id(tensor))
            found[name] = own_part(tensor)
    return found


def _candidates(policy: Policy, masters: Masters, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for name, master in masters.parameters.items():
        yield f"master/{name}", master
        if master.grad is not None:
            yield f"gradient/{name}", master.grad
        for kind, value in optimizer.state.get(master, {}).items():
            if isinstance(value, Tensor):
                yield f"{kind}/{name}", value
    for kind, copies in (("average", masters.averages), ("copy", policy.copies)):
        for copy, values in copies.items():
            for name, value in values.items():
                yield f"{kind}/{copy}/{name}", value


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Of names, shapes, types and every byte. Reads all of it on the CPU: about a second a GB."""
    return digest_of(manifest_of({name: to_array(tensor) for name, tensor in tensors.items()}))
