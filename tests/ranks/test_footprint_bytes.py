"""Bytes that a rank of a tiny model has, beside those that `digend.models.footprint` says.

Collectives are torch's fake ones: one process, and shards, gradients and state of rank 0 of four as large as real ones.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from broker.planning.layouts import Exchange
from digend.config.job import JobConfig
from digend.engines.jobs import Job, load_job
from digend.engines.masters import Masters
from digend.engines.optimizer import build_optimizer
from digend.engines.ranks.joined import REPLICATE, SHARD, Joined
from digend.engines.ranks.tensors import own_part
from digend.models.components import read_components
from digend.models.footprint import (
    COPIES,
    GATHERED,
    GRADIENTS,
    MASTERS,
    OPTIMIZER,
    Footprint,
    Training,
    footprint,
    gradient_item,
    learned_numbers,
    weight_bytes,
)
from digend.rl.layouts import Layout
from tests.engines.world import MemoryContext, job_config, prepare_task
from tests.families import FAMILIES

FLUX = FAMILIES["flux"].spec
LAYOUTS = {
    "replicate": Layout(ranks=4, replicas=4),
    "shard": Layout(ranks=4),
    "shard, 2 replicas": Layout(ranks=4, replicas=2),
    "reshard off": Layout(ranks=4, reshard=False),
    "uneven": Layout(ranks=3),
}
LEARNING: dict[str, dict[str, Any]] = {
    "full": {"trainable": "full", "ema_decay": 0.5},
    "lora": {"trainable": "lora", "lora_rank": 4},
}


@contextmanager
def rank_zero(layout: Layout) -> Iterator[Joined]:
    """As it would have met the others."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=layout.ranks)
    peers = object.__new__(Joined)
    peers.rank, peers.size, peers.replicas, peers.shards = 0, layout.ranks, layout.replicas, layout.shards
    peers.mesh = init_device_mesh("cpu", (layout.replicas, layout.shards), mesh_dim_names=(REPLICATE, SHARD))
    peers._side = distributed.group.WORLD
    try:
        yield peers
    finally:
        distributed.destroy_process_group()


def config_of(folder: Path, layout: Layout, dtype: str, learning: str) -> JobConfig:
    training = {**LEARNING[learning], "ranks": layout.ranks, "replicas": layout.replicas, "reshard": layout.reshard}
    return job_config(folder, model={"dtype": dtype}, training=training)


def training_of(config: JobConfig) -> Training:
    lora = config.training.trainable == "lora"
    return Training(
        trainable=FLUX.trainable,
        rank=config.training.lora_rank if lora else None,
        targets=FLUX.lora_targets,
        averages=int(config.training.ema_decay is not None),
        units=FLUX.sharding_units,
    )


def expected(config: JobConfig, layout: Layout) -> Footprint:
    training = training_of(config)
    return footprint(read_components(config.model.path), config.model.dtype, training, "trainer", layout=layout)


def kept(tensors: Iterable[Tensor]) -> int:
    """Bytes of this rank's parts, the filling included; several may lie in one piece of memory."""
    pieces = [own_part(each).untyped_storage() for each in tensors]
    return sum({piece.data_ptr(): piece.nbytes() for piece in pieces}.values())


class Measured:
    """Whole weights and gradients that FSDP holds beside the shards."""

    def __init__(self, job: Job) -> None:
        (module,) = job.model.trainable.values()
        wrapped: list[Any] = [each for each in module.modules() if hasattr(each, "_get_fsdp_state")]
        states = [each._get_fsdp_state() for each in wrapped]
        self._params = [each for state in states for group in state._fsdp_param_groups for each in group.fsdp_params]
        self.most = 0
        for each in wrapped:
            each.register_forward_pre_hook(self._look)  # after FSDP's own, which gathers

    def weights(self) -> int:
        return kept(out for each in self._params for out in each.all_gather_outputs)

    def gradients(self) -> int:
        found = [each.unsharded_accumulated_grad for each in self._params]
        found += [each._unsharded_param.grad for each in self._params]
        return kept(each for each in found if each is not None)

    def _look(self, *_: object) -> None:
        self.most = max(self.most, self.weights())


def one_pass(job: Job, *, last: bool) -> None:
    conditions = job.model.encode(["a red circle"])
    latents = job.model.initial([torch.Generator().manual_seed(0)], job.shape)
    job.layout.begin_pass(last=last)
    velocity = job.model.velocity(latents, torch.tensor([0.5]), conditions, 3.5, job.shape)
    velocity.sum().backward()  # type: ignore[no-untyped-call]


QUICK = [("shard, 2 replicas", "bfloat16", "full"), ("uneven", "float32", "lora")]
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.matrix)
    for case in product(LAYOUTS, ("float32", "bfloat16"), LEARNING)
]


@pytest.mark.parametrize(("name", "dtype", "learning"), CASES)
def test_a_rank_has_what_the_plan_says(flux_folder: Path, name: str, dtype: str, learning: str) -> None:
    layout = LAYOUTS[name]
    config = config_of(flux_folder, layout, dtype, learning)
    plan = expected(config, layout)
    with rank_zero(layout) as peers:
        job = load_job(prepare_task(config), config, "cpu", trains=True, peers=peers)
        masters = Masters(job.policy)
        optimizer = build_optimizer(list(masters.parameters.values()), config.training)
        (module,) = job.model.trainable.values()
        base = kept(each for each in module.parameters() if not each.requires_grad)
        learned = kept(job.policy.parameters.values())
        assert base + learned == plan.device["transformer"] + plan.device.get("adapter", 0)
        averages = kept(each for copy in job.policy.copies.values() for each in copy.values())
        if masters.separate:
            averages += kept(each for copy in masters.averages.values() for each in copy.values())
            assert kept(masters.parameters.values()) == plan.device[MASTERS]
        assert averages == plan.device.get(COPIES, 0)
        measured = Measured(job) if layout.shards > 1 else None
        for last in (False, True):
            one_pass(job, last=last)
            masters.collect()
        job.layout.begin_step()
        gradient = kept(each.grad for each in masters.parameters.values() if each.grad is not None)
        assert gradient == plan.gradient
        optimizer.step()
        moments = [each[kind] for each in optimizer.state.values() for kind in ("exp_avg", "exp_avg_sq")]
        assert kept(moments) == plan.device[OPTIMIZER]
        if measured is not None and layout.reshard:
            # On a CPU the next block is not gathered meanwhile.
            assert 0.5 * plan.device[GATHERED] < measured.most <= plan.device[GATHERED]


@pytest.mark.parametrize(
    ("dtype", "learning"), [("bfloat16", "full"), pytest.param("float32", "lora", marks=pytest.mark.matrix)]
)
def test_what_reshard_off_keeps_whole(flux_folder: Path, dtype: str, learning: str) -> None:
    """In the middle of a micro-batch: all weights, and the gradient of all that learns."""
    layout = LAYOUTS["reshard off"]
    config = config_of(flux_folder, layout, dtype, learning)
    plan = expected(config, layout)
    with rank_zero(layout) as peers:
        job = load_job(prepare_task(config), config, "cpu", trains=True, peers=peers)
        measured = Measured(job)
        one_pass(job, last=False)
        assert measured.weights() == plan.device[GATHERED]
        own = 2 * plan.gradient + (plan.gradient // 2 if dtype == "bfloat16" and learning == "full" else 0)
        assert measured.gradients() == plan.device[GRADIENTS] - own


class Sent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes that a rank sends by rings, by what its process groups are asked."""

    total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("c10d::")
        if name in ("_allgather_base_", "_reduce_scatter_base_"):
            whole, part = sorted((args[0].nbytes, args[1].nbytes), reverse=True)
            self.total += whole - part
        elif name == "allreduce_":
            size = args[1].size() if hasattr(args[1], "size") else distributed.get_world_size()
            self.total += sum(2 * each.nbytes * (size - 1) / size for each in args[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.matrix
@pytest.mark.parametrize("learning", LEARNING)
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "uneven"])
def test_what_the_plan_says_is_sent(flux_folder: Path, name: str, learning: str) -> None:
    """In three passes; a little more, where tensors are filled up."""
    layout = LAYOUTS[name]
    config = config_of(flux_folder, layout, "float32", learning)
    components, training = read_components(config.model.path), training_of(config)
    exchange = Exchange(
        weights=weight_bytes(components, "float32", training),
        gradient=learned_numbers(components, training) * gradient_item("float32"),
    )
    with rank_zero(layout) as peers:
        job = load_job(prepare_task(config), config, "cpu", trains=True, peers=peers)
        masters = Masters(job.policy)
        sent = Sent()  # type: ignore[no-untyped-call]
        with sent:
            for number in range(3):
                one_pass(job, last=number == 2)
                masters.collect()
            job.layout.end_passes(masters.parameters.values(), MemoryContext())
    assert sent.total == pytest.approx(exchange.sent(layout, 3), rel=0.06)
