"""The modules of a pipeline as their parameters' shapes, or as published numbers: no weights are read, and no torch.

Owns the reading of a folder in diffusers' layout, from the headers of its safetensors files, and who has how many
numbers of a module: one rank, a LoRA adapter, a pass that gathers block by block.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from digend.rl.layouts import shard_numbers

AT_ONCE = 2
"""Blocks that FSDP has whole at a time: the one that computes, and the next one, which it gathers meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A module of a pipeline: the shape of every parameter, by name."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def num_parameters(self) -> int:
        return self.shard(1)

    def shard(self, shards: int) -> int:
        """Numbers of a rank, where it is cut into `shards`."""
        return sum(shard_numbers(shape, shards) for shape in self.shapes.values())

    def adapter_parameters(self, targets: Sequence[str], rank: int, shards: int = 1) -> int:
        """Of a LoRA adapter on the linear layers whose names end with a target: [rank, in] and [out, rank] each."""
        return sum(
            shard_numbers((rank, shape[1]), shards) + shard_numbers((shape[0], rank), shards)
            for name, shape in self.shapes.items()
            if len(shape) == 2 and any(_is_target(name, target) for target in targets)
        )

    def in_pass(self, units: Sequence[str]) -> int:
        """Numbers that are whole at once in a pass of shards: what is in no block, and the largest blocks."""
        blocks: dict[str, int] = {}
        for name, shape in self.shapes.items():
            block = _block_of(name, units)
            blocks[block] = blocks.get(block, 0) + prod(shape)
        rest = blocks.pop("", 0)
        return rest + sum(sorted(blocks.values())[-AT_ONCE:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A module of which only numbers are known. `lora_width` is of its family's own LoRA targets; `largest_block`: of
    its repeated blocks; `outside`: parameters in no block."""

    name: str
    num_parameters: int
    lora_width: int = 0
    largest_block: int = 0
    outside: int = 0

    def shard(self, shards: int) -> int:
        """As if all were one tensor: shards of small ones are filled up by a little more."""
        return -(-self.num_parameters // shards)

    def adapter_parameters(self, targets: Sequence[str], rank: int, shards: int = 1) -> int:
        """`targets` are taken to be the family's."""
        return -(-rank * self.lora_width // shards)

    def in_pass(self, units: Sequence[str]) -> int:
        """`units` are taken to be the family's; all of it where nothing is known of blocks."""
        return self.outside + AT_ONCE * self.largest_block if self.largest_block else self.num_parameters


Part = Component | Counted


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


def weight_files(folder: Path) -> list[Path]:
    """The files of the plain variant: what diffusers loads when none is named."""
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


def _is_target(parameter: str, target: str) -> bool:
    module, _, kind = parameter.rpartition(".")
    return kind == "weight" and (module == target or module.endswith(f".{target}"))


def _block_of(parameter: str, units: Sequence[str]) -> str:
    """`unit.number`; "" for a parameter in no block."""
    for unit in units:
        if parameter.startswith(f"{unit}."):
            return f"{unit}.{parameter.removeprefix(f'{unit}.').partition('.')[0]}"
    return ""


def _component(folder: Path) -> Component:
    shapes = {name: shape for file in weight_files(folder) for name, shape in tensor_shapes(file)}
    return Component(name=folder.name, shapes=shapes)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is not a JSON object")
    return content
