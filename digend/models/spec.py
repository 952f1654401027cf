"""The model family's plug-in protocol. A family module is torch-free at import and exports a `ModelSpec`.

Shapes: B samples; L latent dims of one sample; C condition tensors have no batch dim before `collate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pydantic import BaseModel

if TYPE_CHECKING:
    import torch

Condition = Mapping[str, "torch.Tensor"]
"""One prompt's embeddings, by name, without batch dim. Also image conditions (editing, image-to-video)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a job draws: one shape a job."""

    height: int
    width: int
    num_frames: int


class Model(Protocol):
    """A loaded pipeline. All methods are blocking and run on one thread."""

    @property
    def trainable(self) -> Mapping[str, torch.nn.Module]:
        """Modules that learn, by component name (Wan2.2 has two)."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def check(self, shape: Shape) -> None:
        """Raises ValueError where the family cannot draw this shape, naming what is nearest."""
        ...

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        """The pipeline's own sigma list: num_timesteps + 1 floats, the last 0; float32 values, exactly."""
        ...

    def encode(self, prompts: Sequence[str]) -> list[Condition]: ...

    def initial(self, rngs: Sequence[torch.Generator], shape: Shape) -> torch.Tensor:
        """[B, *L] fp32 initial noise, sample b from rngs[b] (CPU), as the stock pipeline draws it."""
        ...

    def velocity(
        self,
        latents: torch.Tensor,
        sigma: torch.Tensor,
        conditions: Sequence[Condition],
        guidance_scale: float,
        shape: Shape,
    ) -> torch.Tensor:
        """[B, *L] of latents [B, *L], sigma [B] and one condition a sample; samples may be at different sigmas."""
        ...

    def decode(self, latents: torch.Tensor, shape: Shape) -> torch.Tensor:
        """[B, 3, H, W] or [B, F, 3, H, W] in [0, 1], fp32, on the CPU."""
        ...

    def save(self, folder: str) -> None:
        """The whole pipeline in diffusers' layout, safetensors; adapters are merged into a copy."""
        ...

    def save_adapter(self, folder: str) -> None:
        """The LoRA adapter alone, as the stock pipeline's load_lora_weights reads it."""
        ...

    def unload_encoders(self) -> None: ...


@runtime_checkable
class Experts(Protocol):
    """What a `Model` with several trainable modules has beside, so that its weights can be cut into shards: ranks run
    one expert at a time, all of them the same."""

    def expert(self, sigma: float) -> str:
        """The one of `trainable` that a sample at sigma goes through. `velocity` of samples with the same answer runs
        no other, and runs it the same number of times whatever the samples."""
        ...


def expert_at(model: Model, sigma: float) -> str:
    """Empty for a model that does not choose."""
    return model.expert(sigma) if isinstance(model, Experts) else ""


class Decoder(Protocol):
    """The part of a model that a process needs which only scores."""

    def decode(self, latents: torch.Tensor, shape: Shape) -> torch.Tensor:
        """As `Model.decode`; latents [B, *L] on any device."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """`load(path, device, dtype, options)` does the heavy imports. Raises OSError or ValueError that name the file."""

    name: str
    options: type[BaseModel]
    lora_targets: tuple[str, ...]
    loader: str
    """"module:function" of `load(path: str, device: str, dtype: str, options: BaseModel) -> Model`."""
    decoder: str = ""
    """"module:function" with the same arguments that loads what decoding needs and nothing else, a `Decoder`. Empty:
    the family can be decoded where it is generated only."""
    trainable: tuple[str, ...] = ("transformer",)
    """Names of the components that learn: the keys of `Model.trainable`, for who cannot load the model."""
    experts: bool = False
    """Whether the `Model` is one of `Experts`; without, several components cannot be cut into shards."""
    sharding_units: tuple[str, ...] = ()
    """Lists of repeated blocks in a trainable module: what is sharded, compiled or moved as one piece."""
    geometry: str = ""
    """"module:function" of `geometry(config, shape, options, guidance_scale) -> Geometry`, torch-free: how large a pass
    is, of the transformer's configuration. Empty: not known."""
    condition_version: str = "1"
    """Part of the key under which embeddings are cached; change it when `encode` changes."""
