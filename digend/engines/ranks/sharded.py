"""Weights in shards over the ranks of a replica: torch's FSDP2, block by block, on a mesh of replicas and shards.

Owns the wrapping of a loaded model, after its adapter was added, and the passes' gradient synchronisation. Where
weights are put back into shards after use (`training.reshard`), every pass reduces its gradient into shards, because a
whole one would need the memory that sharding saves; replicas add theirs up in the last pass of a micro-batch. Where
weights stay whole between passes, so does the gradient, until the last pass. Sums are in float32 at least.

Invariant: a rank runs no pass that the others of its replica do not run, of the same module.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Module, Parameter

from digend.engines.forwards import Forward
from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.dealing import ExpertOf, deal
from digend.engines.ranks.joined import SHARD, Joined
from digend.engines.ranks.peers import Peers
from digend.engines.ranks.reducing import sum_gradients
from digend.engines.ranks.tensors import gathered, is_cut, own_part
from digend.engines.stored import Part, Stored
from digend.models.spec import Experts, Model, ModelSpec


class Sharded:
    """Each rank has its shards."""

    generates_together = True

    def __init__(self, peers: Joined, modules: Sequence[FSDPModule], *, reshard: bool) -> None:
        self.peers: Peers = peers
        self._modules = modules
        self._holds_back = not reshard or peers.replicas > 1
        self._reshard = reshard

    def deal(self, planned: Sequence[Forward], largest: int, expert_of: ExpertOf) -> tuple[Forward, ...]:
        return deal(planned, self.peers.rank, self.peers.size, largest, expert_of)

    def begin_pass(self, *, last: bool) -> None:
        for module in self._modules:
            module.set_requires_gradient_sync(last or self._reshard, recurse=False)
            module.set_requires_all_reduce(last, recurse=False)
            module.set_reshard_after_backward(last or self._reshard, recurse=False)

    def end_passes(self, parameters: Iterable[Parameter], context: Context) -> None:
        """FSDP has summed the shards."""
        whole = [each for each in parameters if not is_cut(each)]
        if whole:
            with context.stage("gather"):
                sum_gradients(whole, self.peers)

    def begin_step(self) -> None:
        """What was gathered for a pass is old from now on."""
        for module in self._modules:
            module.reshard()

    def give_up(self, once: Iterable[Callable[[], object]]) -> None:
        """What FSDP holds back comes out with one more pass of each expert."""
        if self._holds_back:
            self.begin_pass(last=True)
            for each in once:
                each()

    def whole(self, tensors: Mapping[str, Tensor], context: Context) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        with context.stage("gather"):
            for name, tensor in tensors.items():
                full = gathered(tensor.detach())
                if self.peers.rank == 0:
                    found[name] = full.cpu().contiguous()
        return found

    def part(self, tensors: Mapping[str, Tensor]) -> Part:
        own: dict[str, Tensor] = {}
        rows: dict[str, tuple[int, int]] = {}
        for name, tensor in tensors.items():
            if is_cut(tensor):
                own[name] = own_part(tensor.detach()).cpu().contiguous()
                rows[name] = (self._first_row(tensor), tensor.shape[0])
            elif self.peers.rank == 0:
                own[name] = tensor.detach().cpu().contiguous()
        return Part(own, rows)

    def _first_row(self, tensor: Tensor) -> int:
        """Of this rank's part: FSDP cuts as torch.chunk does, and the last parts may be smaller, or empty."""
        rows, shards = tensor.shape[0], self.peers.shards
        return min(-(-rows // shards) * (self.peers.rank % shards), rows)

    def fill(self, target: Tensor, source: Stored) -> None:
        with torch.no_grad():
            if source.everywhere:
                self._read(target, source)
            elif isinstance(target, DTensor):
                target.copy_(_scattered(target, source, self.peers.rank))
            else:
                if self.peers.rank == 0:
                    target.copy_(source.whole())
                distributed.broadcast(target.data, 0)

    def place(self, source: Stored, like: Tensor) -> Tensor:
        if isinstance(like, DTensor) and source.shape == like.shape:
            placed = torch.empty_like(like)
        else:
            placed = torch.empty(source.shape, dtype=source.dtype, device=like.device)
        self.fill(placed, source)
        return placed

    def _read(self, target: Tensor, source: Stored) -> None:
        if not is_cut(target):
            target.copy_(source.whole())
            return
        own, first = own_part(target), self._first_row(target)
        own.copy_(source.rows(first, first + own.shape[0]))

    def exchange(self, parameters: Mapping[str, Parameter], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`Policy`'s change of values: FSDP keeps views of the shards, so they are copied."""
        self.begin_step()
        with torch.no_grad():
            had = {name: each.detach().clone() for name, each in parameters.items()}
            for name, parameter in parameters.items():
                parameter.copy_(values[name])
        return had


def shard(model: Model, family: ModelSpec, peers: Joined, *, reshard: bool) -> Sharded:
    """Wrap the trained modules in place; their parameters are others afterwards.

    Raises TaskFault("config") for a family with several modules that does not tell which one a pass runs.
    """
    if len(model.trainable) > 1 and not isinstance(model, Experts):
        names = " and ".join(model.trainable)
        raise TaskFault(
            "config",
            f"training.replicas: {names} cannot be cut into shards, because {family.name} does not tell which of them "
            "a pass runs (Experts in digend/models/spec.py); replicas = training.ranks",
        )
    # Blocks return slices of one tensor; nothing here or in diffusers' transformers changes those in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module", category=UserWarning)
    mesh = peers.mesh if peers.replicas > 1 else peers.mesh[SHARD]
    modules = [each for module in model.trainable.values() for each in _wrapped(module, family, mesh, reshard)]
    for module in modules:
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return Sharded(peers, modules, reshard=reshard)


def _wrapped(module: Module, family: ModelSpec, mesh: DeviceMesh, reshard: bool) -> Iterator[FSDPModule]:
    dtype, others = _by_type(module)
    half = dtype.itemsize < torch.float32.itemsize
    precision = MixedPrecisionPolicy(reduce_dtype=torch.float32 if half else None, cast_forward_inputs=False)
    for parameter in others:
        parameter.data = parameter.data.to(mesh.device_type)
    blocks = [block for name in family.sharding_units for block in module.get_submodule(name).children()]
    for each in (*blocks, module):
        yield fully_shard(
            each, mesh=mesh, reshard_after_forward=reshard, mp_policy=precision, ignored_params=set(others)
        )


def _by_type(module: Module) -> tuple[torch.dtype, list[Parameter]]:
    """The number type of most that learns, and the parameters that learn in another one: FSDP wants one type, so these
    stay whole on every rank. Wan keeps its small ones in float32."""
    sizes: Counter[torch.dtype] = Counter()
    learning = [each for each in module.parameters() if each.requires_grad]
    for parameter in learning:
        sizes[parameter.dtype] += parameter.numel()
    dtype = sizes.most_common(1)[0][0]
    return dtype, [each for each in learning if each.dtype != dtype]


def _scattered(like: DTensor, source: Stored, rank: int) -> DTensor:
    device = like.device_mesh.device_type
    if rank == 0:
        full = source.whole().to(device, like.dtype)
    else:
        full = torch.empty(like.shape, dtype=like.dtype, device=device)
    return distribute_tensor(full, like.device_mesh, like.placements)
