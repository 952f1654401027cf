"""How much memory a model takes, from the headers of its safetensors files: no weights are read, and no torch.

Owns the reading of a folder in diffusers' layout and the bytes that follow from parameters alone. What depends on
shapes and kernels (activations, caches, the allocator's reserve) is not known here and is said not to be.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
MASTERS, GRADIENTS, OPTIMIZER, COPIES = "float32 masters", "gradients", "optimizer state", "copies"
TRAINING_STATE = (MASTERS, GRADIENTS, OPTIMIZER, COPIES)
"""What only training needs: it may wait in host memory while the trainer generates."""
NOT_MEASURED = ("the VAE's decoding", "latents and trajectories", "workspaces of kernels", "the allocator's reserve")
_FACTORED = 16
"""Adafactor keeps a row and a column of a matrix: of an adapter of rank 32 a thirtieth, of whole weights far less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A module of a pipeline: the shape of every parameter, by name."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def num_parameters(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def adapter_parameters(self, targets: Sequence[str], rank: int) -> int:
        """Of a LoRA adapter on the linear layers whose names end with a target: rank x (in + out) each."""
        return sum(
            rank * (shape[0] + shape[1])
            for name, shape in self.shapes.items()
            if len(shape) == 2 and any(_is_target(name, target) for target in targets)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A module of which only numbers are known; `lora_width` is of its family's own LoRA targets."""

    name: str
    num_parameters: int
    lora_width: int = 0

    def adapter_parameters(self, targets: Sequence[str], rank: int) -> int:
        """`targets` are taken to be the family's."""
        return rank * self.lora_width


Part = Component | Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What learns: components in full, or an adapter of `rank` on `targets` (None: in full).

    `copies`: further whole copies of what learns, such as a reference or an average.
    """

    trainable: Sequence[str]
    rank: int | None
    targets: Sequence[str]
    optimizer: str = "adamw"
    copies: int = 0


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


def read_components(path: str) -> tuple[Component, ...]:
    """The modules of a pipeline folder. Raises OSError or ValueError that name the file."""
    folder = Path(path)
    index = folder / "model_index.json"
    if not index.is_file():
        raise OSError(f"{index} is missing; a diffusers pipeline folder has one")
    found = [
        _component(folder / name)
        for name, kind in _json(index).items()
        if isinstance(kind, list) and any((folder / name).glob("*.safetensors"))
    ]
    return tuple(found)


def footprint(
    components: Sequence[Part],
    dtype: str,
    training: Training,
    role: str,
    saving: Saving | None = None,
    extra: Mapping[str, int] | None = None,
) -> Footprint:
    """Of a generator or of a trainer. `dtype`: model.dtype of the job; half precision keeps the VAE in float32.

    `extra`: further parts of the device, such as activations and rewards.
    """
    saving = saving or Saving()
    learned = _learned_bytes(components, dtype, training)
    device: dict[str, int] = {}
    gradient = 0
    host = {"published version" if role == "trainer" else "staged version": learned}
    for each in components:
        on_device, waiting = _weights(each, dtype, training, saving, role)
        device[each.name] = on_device
        if waiting:
            host[each.name] = waiting
    if training.rank is not None:
        device["adapter"] = learned
    if role == "trainer":
        exact = learned * max(1, ITEM_BYTES["float32"] // ITEM_BYTES[dtype]) if training.rank is None else learned
        gradient, separate = exact, learned if exact != learned else 0
        if separate:
            device[MASTERS] = exact
        # A micro-batch's gradient is made apart and added when it is whole; a pass leaves its own in the model's type.
        device[GRADIENTS] = 2 * exact + separate
        device[OPTIMIZER] = 2 * exact if training.optimizer == "adamw" else exact // _FACTORED
        if training.copies:
            device[COPIES] = training.copies * learned
    return Footprint(device={**device, **(extra or {})}, host=host, gradient=gradient)


def _weights(component: Part, dtype: str, training: Training, saving: Saving, role: str) -> tuple[int, int]:
    """Bytes of a component's weights on the device, and in host memory."""
    learns = component.name in training.trainable
    whole = component.num_parameters * (1 if learns and saving.casting else _item_bytes(component.name, dtype))
    if component.name.startswith("text_encoder") and saving.offload_encoders:
        return 0, whole
    if learns and saving.offload_blocks and saving.layers and role != "trainer":
        # The group that computes, and the one that follows it.
        kept = min(whole, whole * (saving.offload_blocks + 1) // saving.layers)
        return kept, whole - kept
    return whole, 0


def adapter_parameters(components: Sequence[Part], training: Training) -> int | None:
    """Parameters of the LoRA adapter; None where there is none."""
    if training.rank is None:
        return None
    trained = [each for each in components if each.name in training.trainable]
    return sum(each.adapter_parameters(training.targets, training.rank) for each in trained)


def _learned_bytes(components: Sequence[Part], dtype: str, training: Training) -> int:
    """An adapter is kept in float32 or better, whatever the base is in."""
    numbers = adapter_parameters(components, training)
    if numbers is None:
        trained = [each for each in components if each.name in training.trainable]
        return sum(each.num_parameters for each in trained) * ITEM_BYTES[dtype]
    return numbers * max(ITEM_BYTES[dtype], ITEM_BYTES["float32"])


def _item_bytes(component: str, dtype: str) -> int:
    return max(ITEM_BYTES[dtype], ITEM_BYTES["float32"]) if component == "vae" else ITEM_BYTES[dtype]


def _is_target(parameter: str, target: str) -> bool:
    module, _, kind = parameter.rpartition(".")
    return kind == "weight" and (module == target or module.endswith(f".{target}"))


def _component(folder: Path) -> Component:
    shapes = {name: shape for file in weight_files(folder) for name, shape in tensor_shapes(file)}
    return Component(name=folder.name, shapes=shapes)


def weight_files(folder: Path) -> list[Path]:
    """The shards of the plain variant: what diffusers loads when none is named."""
    indexes = sorted(folder.glob("*.safetensors.index.json"), key=lambda file: len(file.name))
    if indexes:
        return [folder / name for name in sorted(set(_json(indexes[0]).get("weight_map", {}).values()))]
    return sorted(folder.glob("*.safetensors"), key=lambda file: len(file.name))[:1]


def tensor_shapes(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in a safetensors file, from its header. Raises ValueError for another kind of file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            for name in opened.keys():  # noqa: SIM118  (not a dict)
                yield name, tuple(opened.get_slice(name).get_shape())
    except SafetensorError as error:
        raise ValueError(f"{file} is no safetensors file: {error}") from error


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is not a JSON object")
    return content
