"""Less memory for more time: the options of `[model.memory]`, applied to a loaded model by the libraries they are of.

Owns the order: number types and attention before an adapter is added, because it is built around the layers; compiling
and offloading after it, because they hold on to what is there. Must not know tasks. Invariant: an option that a family
or a library refuses is an error that names its key, never silently left out.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from digend.config.job import JobConfig
from digend.engines.protocols import TaskFault
from digend.models.pipelines import ENCODERS
from digend.models.spec import Model, ModelSpec

_KEY = "model.memory"


def left_out(config: JobConfig, family: ModelSpec, *, trains: bool) -> list[str]:
    """Components that need never be on the device as a whole."""
    memory = config.model.memory
    names = [ENCODERS] if memory.offload_encoders else []
    return [*names, *family.trainable] if memory.offload_blocks and not trains else names


def before_adapter(model: Model, config: JobConfig) -> None:
    """Casting, attention, the VAE and the encoders. Raises TaskFault("config")."""
    memory = config.model.memory
    modules: list[Any] = list(model.trainable.values())
    if memory.attention_backend:
        for module in modules:
            _asked("attention_backend", partial(module.set_attention_backend, memory.attention_backend))
    if memory.layerwise_casting != "none":
        if config.training.trainable == "full":
            raise TaskFault(
                "config", f'{_KEY}.layerwise_casting: weights that learn cannot be kept so; training.trainable = "lora"'
            )
        storage: torch.dtype = getattr(torch, memory.layerwise_casting)
        for module in modules:
            _asked(
                "layerwise_casting",
                partial(module.enable_layerwise_casting, storage_dtype=storage, compute_dtype=model.dtype),
            )
    for key, wanted in (
        ("vae_tiling", memory.vae_tiling),
        ("vae_slicing", memory.vae_slicing),
        ("offload_encoders", memory.offload_encoders),
    ):
        if wanted:
            _asked(key, partial(_enable, model, key))


def after_adapter(model: Model, config: JobConfig, family: ModelSpec, *, trains: bool) -> None:
    """Compiling, and on processes that only generate offloading. Raises TaskFault("config")."""
    memory = config.model.memory
    if memory.compile_blocks:
        known = torch.compiler.list_backends(exclude_tags=())
        if memory.compile_blocks not in known:
            raise TaskFault("config", f"{_KEY}.compile_blocks: {memory.compile_blocks!r} is none of {', '.join(known)}")
        for block in _blocks(model, family, "compile_blocks"):
            block.compile(backend=memory.compile_blocks)
    if memory.offload_blocks and not trains:
        _offload(model, memory.offload_blocks)


def _blocks(model: Model, family: ModelSpec, key: str) -> Iterator[torch.nn.Module]:
    if not family.sharding_units:
        raise TaskFault("config", f"{_KEY}.{key}: {family.name} names no repeated blocks")
    for module in model.trainable.values():
        for name in family.sharding_units:
            yield from module.get_submodule(name).children()


def _offload(model: Model, num_blocks: int) -> None:
    """Blocks that wait are in host memory; the rest of the module stays on the device."""
    from diffusers.hooks import apply_group_offloading

    for module in model.trainable.values():
        act = partial(
            apply_group_offloading,
            module,
            onload_device=model.device,
            offload_device=torch.device("cpu"),
            offload_type="block_level",
            num_blocks_per_group=num_blocks,
        )
        _asked("offload_blocks", act)


def _enable(model: Model, key: str) -> None:
    getattr(model, f"enable_{key}")()


def _asked(key: str, act: Callable[[], object]) -> None:
    """What a library says no to is the job file's fault."""
    try:
        act()
    except (AttributeError, ValueError, RuntimeError, ImportError) as error:
        raise TaskFault("config", f"{_KEY}.{key}: {error}") from error
