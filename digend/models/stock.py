"""What every family on a stock diffusers pipeline has in common; a family adds its own encoding, forward pass, decode.

Owns the modules and their number type, prompt embeddings with those of the negative prompt beside them, sigma lists
from the pipeline's scheduler, and what is written. Must not know a forward pass.

Invariants: a condition is whole (it holds the negative prompt's embeddings too), so that generator and trainer use the
same tensors; the negative prompt is encoded once a process. Sigmas are what the pipeline's own scheduler gives.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digend.models.pipelines import save_adapter, save_pipeline
from digend.models.spec import Condition, Shape

NEGATIVE = "negative_"


class StockModel(ABC):
    """A loaded pipeline. `negative_prompt` None: the family knows no unconditional pass."""

    encoders: tuple[str, ...] = ("text_encoder",)
    """Components that `encode` needs and nothing else."""

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, negative_prompt: str | None = None) -> None:
        self._pipeline = pipeline
        self._path = path
        self._dtype = dtype
        self._device: torch.device = pipeline.vae.device
        self._negative_prompt = negative_prompt
        self._negative: Condition | None = None
        self._hooks: list[Any] = []

    @property
    def trainable(self) -> Mapping[str, torch.nn.Module]:
        return {"transformer": self._pipeline.transformer}

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def encode(self, prompts: Sequence[str]) -> list[Condition]:
        """One condition a prompt, on the CPU; the negative prompt's tensors under `negative_...`."""
        with torch.no_grad():
            if self._negative is None and self._negative_prompt is not None:
                self._negative = self._embed([self._negative_prompt])[0]
            conditions = self._embed(list(prompts))
        for hook in self._hooks:
            hook.offload()
        negative = {NEGATIVE + name: tensor for name, tensor in (self._negative or {}).items()}
        return [{**condition, **negative} for condition in conditions]

    def save(self, folder: str) -> None:
        save_pipeline(self._path, folder, self.trainable)

    def save_adapter(self, folder: str) -> None:
        save_adapter(self._pipeline, folder, self.trainable)

    def unload_encoders(self) -> None:
        self._pipeline.register_modules(**dict.fromkeys(self.encoders))

    def enable_vae_tiling(self) -> None:
        self._pipeline.vae.enable_tiling()

    def enable_vae_slicing(self) -> None:
        self._pipeline.vae.enable_slicing()

    def enable_offload_encoders(self) -> None:
        """From now on they are in host memory, and on the device while `encode` runs."""
        from accelerate import cpu_offload_with_hook

        for name in self.encoders:
            encoder = getattr(self._pipeline, name)
            if encoder is not None:
                self._hooks.append(cpu_offload_with_hook(encoder, self._device)[1])

    @abstractmethod
    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """Embeddings by name, on the CPU, without batch dimension."""

    def _scheduled(self, num_timesteps: int | None, **arguments: object) -> list[float]:
        """The sigma list that the pipeline's scheduler makes of these arguments."""
        self._pipeline.scheduler.set_timesteps(num_timesteps, **arguments)
        values: list[float] = self._pipeline.scheduler.sigmas.tolist()
        return values

    def _mu(self, num_tokens: int, max_shift: float) -> float:
        """The shift for an image of so many tokens, by the scheduler's configuration or diffusers' defaults."""
        config = self._pipeline.scheduler.config
        first, last = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
        low, high = config.get("base_shift", 0.5), config.get("max_shift", max_shift)
        slope = (high - low) / (last - first)
        return float(num_tokens * slope + (low - slope * first))

    def _timestep(self, sigma: Tensor) -> Tensor:
        """[B] in float32: what the scheduler would call these sigmas."""
        scaled: Tensor = sigma.float() * self._pipeline.scheduler.config.num_train_timesteps
        return scaled.to(self.device)

    def _video_noise(self, rngs: Sequence[torch.Generator], shape: Shape) -> Tensor:
        """[B, C, f, h, w] as the pipeline draws it, on the CPU in float32, then on the device."""
        channels = self._pipeline.transformer.config.in_channels
        size = (shape.height, shape.width, shape.num_frames)
        latents: Tensor = self._pipeline.prepare_latents(
            len(rngs), channels, *size, torch.float32, torch.device("cpu"), list(rngs)
        )
        return latents.to(self.device)

    def _stack(self, conditions: Sequence[Condition], name: str) -> Tensor:
        return torch.stack([condition[name] for condition in conditions]).to(self.device, self._dtype)


def evenly(num_timesteps: int) -> NDArray[np.float64]:
    """linspace(1, 1/T, T), which FLUX's and Qwen-Image's pipelines give their schedulers."""
    return np.linspace(1.0, 1 / num_timesteps, num_timesteps)


def on_cpu(**batches: Tensor) -> list[dict[str, Tensor]]:
    """Batches [B, ...] by name as one dictionary a sample, in memory of its own."""
    names = list(batches)
    rows = zip(*batches.values(), strict=True)
    return [{name: tensor.cpu().clone() for name, tensor in zip(names, row, strict=True)} for row in rows]


def denormalised(latents: Tensor, vae: Any) -> Tensor:
    """[B, C, f, h, w] by the VAE's means and deviations of each channel, in its number type."""
    latents = latents.to(vae.dtype)
    column = (1, vae.config.z_dim, 1, 1, 1)
    mean = torch.tensor(vae.config.latents_mean).view(column).to(latents.device, latents.dtype)
    inverse = 1.0 / torch.tensor(vae.config.latents_std).view(column).to(latents.device, latents.dtype)
    return latents / inverse + mean


def video_pixels(pipeline: Any, video: Tensor, shape: Shape) -> Tensor:
    """[B, F, 3, H, W] in [0, 1] of a VAE's [B, 3, F, H, W]; of one frame an image, [B, 3, H, W]."""
    pixels: Tensor = pipeline.video_processor.postprocess_video(video, output_type="pt")
    pixels = pixels.float().cpu()
    return pixels[:, 0] if shape.num_frames == 1 else pixels
