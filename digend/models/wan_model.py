"""Wan2.1, and Wan2.2 with its two transformers, on the stock WanPipeline, cut at the places where RL needs a handle.

Owns the family's conventions: the scheduler's own sigmas, timesteps of 1000 sigma, guidance as two passes one after
the other, latents normalised by the VAE's means and deviations. Transitions here are Euler steps. A checkpoint whose
scheduler is another solver of the same flow (Wan's is UniPC) gives its sigmas, and level 0 then follows the same path
in first-order steps; with FlowMatchEulerDiscreteScheduler level 0 is the stock pipeline, bit for bit in float32.
"""

# Shapes: B samples; C latent channels; f latent frames, 1 + (F - 1) / 4; h, w latent rows and columns; E text tokens.

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models import guidance
from digend.models.pipelines import check_folder, check_tokens, load_pipeline, load_vae
from digend.models.shapes import check_frames, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import NEGATIVE, StockModel, denormalised, on_cpu, video_pixels
from digend.models.wan import WanOptions
from digend.models.wan22 import Wan22Options


class WanModel(StockModel):
    """A loaded WanPipeline; its transformer learns, or both where it has two."""

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: WanOptions) -> None:
        super().__init__(pipeline, path, dtype, options.negative_prompt)
        self._max_sequence_length = options.max_sequence_length
        self._guidance_scale_2 = options.guidance_scale_2 if isinstance(options, Wan22Options) else None
        ratio = pipeline.config.boundary_ratio
        self._boundary = None if ratio is None else ratio * pipeline.scheduler.config.num_train_timesteps

    @property
    def trainable(self) -> Mapping[str, torch.nn.Module]:
        second = self._pipeline.transformer_2
        return {**super().trainable, **({} if second is None else {"transformer_2": second})}

    def check(self, shape: Shape) -> None:
        patch = self._pipeline.transformer.config.patch_size
        multiple = max(16, self._pipeline.vae_scale_factor_spatial * max(patch[1:]))
        largest = self._pipeline.transformer.config.rope_max_seq_len * multiple
        check_frames(shape, self._pipeline.vae_scale_factor_temporal)
        check_size(shape, multiple, largest)

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        return self._scheduled(num_timesteps)

    def initial(self, rngs: Sequence[torch.Generator], shape: Shape) -> Tensor:
        """[B, C, f, h, w]."""
        return self._video_noise(rngs, shape)

    def velocity(
        self,
        latents: Tensor,
        sigma: Tensor,
        conditions: Sequence[Condition],
        guidance_scale: float,
        shape: Shape,
    ) -> Tensor:
        """[B, C, f, h, w]. With two transformers, each sample goes through the one of its timestep."""
        timestep = self._timestep(sigma)
        high = self._is_high(timestep)
        on = guidance.is_on(guidance_scale)
        parts: list[Tensor] = []
        places: list[Tensor] = []
        for module, mine, scale in (
            (self._pipeline.transformer, high, guidance_scale),
            (self._pipeline.transformer_2, ~high, self._low_scale(guidance_scale)),
        ):
            rows = mine.nonzero()[:, 0]
            if len(rows):
                chosen = [conditions[row] for row in rows.tolist()]
                parts.append(self._pass(module, latents[rows], timestep[rows], chosen, scale if on else None))
                places.append(rows)
        return torch.cat(parts)[torch.argsort(torch.cat(places))]

    def expert(self, sigma: float) -> str:
        return "transformer" if bool(self._is_high(self._timestep(torch.tensor([sigma])))) else "transformer_2"

    def _is_high(self, timestep: Tensor) -> Tensor:
        """[B], whether the first transformer draws there."""
        return timestep >= (0.0 if self._boundary is None else self._boundary)

    def _low_scale(self, guidance_scale: float) -> float:
        return guidance_scale if self._guidance_scale_2 is None else self._guidance_scale_2

    def _pass(
        self,
        transformer: Any,
        latents: Tensor,
        timestep: Tensor,
        conditions: Sequence[Condition],
        scale: float | None,
    ) -> Tensor:
        """Of samples that share a transformer; scale None: without an unconditional pass."""
        hidden = latents.to(self.device, self._dtype)

        def one_pass(sign: str) -> Tensor:
            (velocity,) = transformer(
                hidden_states=hidden,
                timestep=timestep,
                encoder_hidden_states=self._stack(conditions, f"{sign}prompt_embeds"),
                return_dict=False,
            )
            return velocity  # type: ignore[no-any-return]

        if scale is None:
            return one_pass("")
        return guidance.two_passes(lambda: one_pass(""), lambda: one_pass(NEGATIVE), scale, self.device)

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        """[B, F, 3, H, W], or [B, 3, H, W] for one frame."""
        vae = self._pipeline.vae
        with torch.no_grad():
            video = vae.decode(denormalised(latents.to(self.device), vae), return_dict=False)[0]
        return video_pixels(self._pipeline, video, shape)

    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """prompt_embeds [E, D] a prompt."""
        embeds, _ = self._pipeline.encode_prompt(
            prompts,
            do_classifier_free_guidance=False,
            max_sequence_length=self._max_sequence_length,
            device=self.device,
        )
        return on_cpu(prompt_embeds=embeds)


def load(path: str, device: str, dtype: str, options: BaseModel) -> WanModel:
    """Wan2.1. Raises OSError or ValueError that name the file or the option."""
    model, pipeline = _load(path, device, dtype, options, ("transformer",))
    if pipeline.transformer_2 is not None:
        raise ValueError(f'model.path: {path} holds two transformers (Wan2.2); model.family = "wan22" trains both')
    return model


def load_two(path: str, device: str, dtype: str, options: BaseModel) -> WanModel:
    """Wan2.2. Raises OSError or ValueError that name the file or the option."""
    model, pipeline = _load(path, device, dtype, options, ("transformer", "transformer_2"))
    if pipeline.config.boundary_ratio is None:
        raise ValueError(f"model.path: {path}/model_index.json has no boundary_ratio between its two transformers")
    return model


def _load(path: str, device: str, dtype: str, options: BaseModel, trained: Sequence[str]) -> tuple[WanModel, Any]:
    assert isinstance(options, WanOptions)
    check_folder(path, "WanPipeline", (*trained, "vae", "text_encoder"))
    number_type: torch.dtype = getattr(torch, dtype)
    pipeline = load_pipeline(path, device, number_type, trained)
    check_tokens(options.max_sequence_length, pipeline.tokenizer, f"{path}/tokenizer")
    if pipeline.config.expand_timesteps:
        raise ValueError(f"model.path: {path} has a timestep for each token (Wan2.2 TI2V), which this family has not")
    return WanModel(pipeline, path, number_type, options), pipeline


def load_decoder(path: str, device: str, dtype: str, options: BaseModel) -> WanModel:
    """For `decode` alone. Raises OSError or ValueError that name the file."""
    assert isinstance(options, WanOptions)
    check_folder(path, "WanPipeline", ("vae",))
    number_type: torch.dtype = getattr(torch, dtype)
    return WanModel(load_vae(path, device, number_type), path, number_type, options)
