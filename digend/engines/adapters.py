"""A LoRA adapter from a folder, as policy version 0: what `digenctl export`, and stock diffusers, write.

Owns the check that it is an adapter of the job's shape. Invariant: all of the policy's parameters are bound, or none is
changed and the error names what differs.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from digend.config.job import TrainingConfig
from digend.engines.digests import file_digest
from digend.engines.policy import ADAPTER, EMA, Policy
from digend.engines.protocols import TaskFault

FILE = "pytorch_lora_weights.safetensors"
_METADATA = "lora_adapter_metadata"
_PREFIX = "transformer."
"""Of all names in the file, a second transformer's too, which has a folder of its own."""


def start_from_adapter(policy: Policy, components: Mapping[str, object], training: TrainingConfig) -> str:
    """Load `training.init_adapter` into a fresh policy; returns the digest of its files, "" where none is named.

    Raises TaskFault("config") that names the folder and what differs.
    """
    if training.init_adapter is None:
        return ""
    folder = Path(training.init_adapter)
    files = {name: folder / FILE if name == "transformer" else folder / name / FILE for name in components}
    values: dict[str, Tensor] = {}
    digest = blake2b(digest_size=16)
    try:
        for component, file in files.items():
            values |= _read(file, component, training)
            digest.update(file_digest(file).encode())
        like = policy.parameters
        policy.load({name: _as(each, like.get(name)) for name, each in values.items()})
    except (OSError, SafetensorError, ValueError) as error:
        raise TaskFault("config", f"training.init_adapter: {folder} cannot be read: {error}") from error
    except TaskFault as error:
        raise TaskFault("config", f"training.init_adapter: {folder}: {error}") from error
    if EMA in policy.copies:
        policy.keep(EMA)
    return digest.hexdigest()


def _read(file: Path, component: str, training: TrainingConfig) -> dict[str, Tensor]:
    """A file's tensors by the names that they have in the policy."""
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        metadata = json.loads((opened.metadata() or {}).get(_METADATA, "{}"))
    ranks = sorted({each.shape[0] for name, each in tensors.items() if name.endswith(".lora_A.weight")})
    if ranks != [training.lora_rank]:
        found = ", ".join(map(str, ranks)) or "no LoRA matrix"
        raise TaskFault("config", f"{file.name} has rank {found}, training.lora_rank is {training.lora_rank}")
    alpha = float(metadata.get(f"{_PREFIX}lora_alpha", ranks[0]))
    if alpha != training.lora_alpha:
        raise TaskFault("config", f"{file.name} has alpha {alpha:g}, training.lora_alpha is {training.lora_alpha:g}")
    return {f"{component}/{_known_as(name)}": each for name, each in tensors.items()}


def _known_as(name: str) -> str:
    """`transformer.x.lora_A.weight` is `x.lora_A.default.weight` in the module."""
    plain = name.removeprefix(_PREFIX)
    return plain.removesuffix(".weight") + f".{ADAPTER}.weight" if plain.endswith(".weight") else plain


def _as(value: Tensor, like: Tensor | None) -> Tensor:
    return value if like is None else value.to(like.dtype)
