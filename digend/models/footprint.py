"""How much memory a model takes, of its parameters alone: arithmetic, no torch.

Owns the bytes on one device that follow from components, what learns of them and how a trainer's ranks share it. What
depends on shapes and kernels (activations, caches, the allocator's reserve) is not known here and is said not to be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from digend.models.components import Part
from digend.rl.layouts import ONE_RANK, Layout

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
MASTERS, GRADIENTS, OPTIMIZER, COPIES = "float32 masters", "gradients", "optimizer state", "copies"
TRAINING_STATE = (MASTERS, GRADIENTS, OPTIMIZER, COPIES)
"""What only training needs: it may wait in host memory while the trainer generates."""
GATHERED = "gathered weights"
"""Of ranks with shards: what a pass has whole beside them."""
NOT_MEASURED = ("the VAE's decoding", "latents and trajectories", "workspaces of kernels", "the allocator's reserve")
_FACTORED = 16
"""Adafactor keeps a row and a column of a matrix: of an adapter of rank 32 a thirtieth, of whole weights far less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What learns: components in full, or an adapter of `rank` on `targets` (None: in full).

    `averages`, `copies`: further whole copies of what learns, averages and others (a reference). `units`: lists of the
    blocks that are gathered one by one where ranks have shards.
    """

    trainable: Sequence[str]
    rank: int | None
    targets: Sequence[str]
    optimizer: str = "adamw"
    averages: int = 0
    copies: int = 0
    units: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What of `[model.memory]` changes bytes. `layers`: of the transformer, where blocks are offloaded."""

    offload_encoders: bool = False
    casting: bool = False
    offload_blocks: int = 0
    layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes by part, on the device and in host memory. `gradient`: the accumulated one, of a trainer."""

    device: Mapping[str, int]
    host: Mapping[str, int]
    gradient: int = 0

    @property
    def device_bytes(self) -> int:
        return sum(self.device.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Generating:
    """Bytes while a trainer generates (TAG): on the device with what only training needs there (`shared`) and with it
    out of the way (`offloaded`), and in host memory then (`waiting`)."""

    shared: int
    offloaded: int
    waiting: int


def while_generating(trainer: Footprint, activations: str, generating: int) -> Generating:
    """`activations`: the part of the footprint in whose place those of a rollout come, `generating` bytes."""
    stays = sum(size for part, size in trainer.device.items() if part not in (*TRAINING_STATE, activations))
    waiting = trainer.gradient + sum(trainer.device.get(part, 0) for part in TRAINING_STATE if part != GRADIENTS)
    offloaded = stays + generating
    return Generating(shared=offloaded + waiting, offloaded=offloaded, waiting=waiting)


def footprint(
    components: Sequence[Part],
    dtype: str,
    training: Training,
    role: str,
    saving: Saving | None = None,
    extra: Mapping[str, int] | None = None,
    layout: Layout = ONE_RANK,
) -> Footprint:
    """Of a generator, or of a trainer: of each of its ranks. `dtype`: model.dtype of the job; half precision keeps the
    VAE in float32. `extra`: further parts of the device, such as activations and rewards.

    Only rank 0 has the published version in host memory.
    """
    saving = saving or Saving()
    shards = layout.shards if role == "trainer" else 1
    learned = learned_numbers(components, training) * _learned_item(dtype, training)
    device: dict[str, int] = {}
    host = {"published version" if role == "trainer" else "staged version": learned}
    for each in components:
        on_device, waiting = _weights(each, dtype, training, saving, role, shards)
        device[each.name] = on_device
        if waiting:
            host[each.name] = waiting
    if training.rank is not None:
        device["adapter"] = learned_numbers(components, training, shards) * _learned_item(dtype, training)
    gradient = 0
    if role == "trainer":
        state, gradient = _training_state(components, dtype, training, shards)
        device |= state
        if shards > 1:
            device[GATHERED], summed = _gathered(components, dtype, training, reshard=layout.reshard)
            device[GRADIENTS] += summed
    return Footprint(device={**device, **(extra or {})}, host=host, gradient=gradient)


def learned_numbers(components: Sequence[Part], training: Training, shards: int = 1) -> int:
    """Parameters that learn, of one rank where they are cut into `shards`."""
    trained = [each for each in components if each.name in training.trainable]
    if training.rank is None:
        return sum(each.shard(shards) for each in trained)
    return sum(each.adapter_parameters(training.targets, training.rank, shards) for each in trained)


def gradient_item(dtype: str) -> int:
    """Bytes of one number of the gradient: it is summed in float32 at least, an adapter's too."""
    return max(ITEM_BYTES[dtype], ITEM_BYTES["float32"])


def weight_bytes(components: Sequence[Part], dtype: str, training: Training) -> int:
    """Of the modules that learn, an adapter included: what ranks with shards exchange to have them whole."""
    base = sum(each.num_parameters for each in components if each.name in training.trainable) * ITEM_BYTES[dtype]
    adapter = 0 if training.rank is None else learned_numbers(components, training) * _learned_item(dtype, training)
    return base + adapter


def _training_state(
    components: Sequence[Part], dtype: str, training: Training, shards: int
) -> tuple[dict[str, int], int]:
    """Parts of a trainer's device, and the accumulated gradient alone."""
    numbers = learned_numbers(components, training, shards)
    item, exact = _learned_item(dtype, training), numbers * gradient_item(dtype)
    separate = numbers * item if item < gradient_item(dtype) else 0
    # A micro-batch's gradient is made apart and added when it is whole; a pass leaves its own in the model's type.
    found = {GRADIENTS: 2 * exact + separate, OPTIMIZER: 2 * exact}
    if training.optimizer != "adamw":
        found[OPTIMIZER] = exact // _FACTORED
    if separate:
        found[MASTERS] = exact
    # What is averaged in half precision has a float32 average beside it.
    copies = (training.averages + training.copies) * numbers * item + training.averages * (exact if separate else 0)
    if copies:
        found[COPIES] = copies
    return {part: found[part] for part in TRAINING_STATE if part in found}, exact


def _gathered(components: Sequence[Part], dtype: str, training: Training, *, reshard: bool) -> tuple[int, int]:
    """Weights that a rank has whole in a pass beside its shards, and their gradient. Block by block, a pass leaves that
    in the model's type and it is summed in the exact one; kept whole, it is the exact one of all that learns."""
    trained = [each for each in components if each.name in training.trainable]
    whole = sum(each.num_parameters for each in trained)
    at_once = sum(each.in_pass(training.units) for each in trained) if reshard else whole
    item, exact = _learned_item(dtype, training), gradient_item(dtype)
    learned = at_once
    if training.rank is not None:
        learned = -(-learned_numbers(components, training) * at_once // whole)
    adapter = 0 if training.rank is None else learned * item
    passing = item if reshard and item < exact else 0
    return at_once * ITEM_BYTES[dtype] + adapter, learned * (exact + passing)


def _weights(
    component: Part, dtype: str, training: Training, saving: Saving, role: str, shards: int
) -> tuple[int, int]:
    """Bytes of a component's weights on the device, and in host memory."""
    learns = component.name in training.trainable
    item = 1 if learns and saving.casting else _item_bytes(component.name, dtype)
    whole = (component.shard(shards) if learns else component.num_parameters) * item
    if component.name.startswith("text_encoder") and saving.offload_encoders:
        return 0, whole
    if learns and saving.offload_blocks and saving.layers and role != "trainer":
        # The group that computes, and the one that follows it.
        kept = min(whole, whole * (saving.offload_blocks + 1) // saving.layers)
        return kept, whole - kept
    return whole, 0


def _learned_item(dtype: str, training: Training) -> int:
    """An adapter is kept in float32 or better, whatever the base is in."""
    return ITEM_BYTES[dtype] if training.rank is None else gradient_item(dtype)


def _item_bytes(component: str, dtype: str) -> int:
    return gradient_item(dtype) if component == "vae" else ITEM_BYTES[dtype]
