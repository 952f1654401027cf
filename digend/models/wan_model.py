"""Wan2.1 on the stock WanPipeline, cut at the places where RL needs a handle.

Owns the family's conventions: the scheduler's own sigmas, timesteps of 1000 sigma, guidance as two passes one after
the other, latents normalised by the VAE's means and deviations. Transitions here are Euler steps. A checkpoint whose
scheduler is another solver of the same flow (Wan's is UniPC) gives its sigmas, and level 0 then follows the same path
in first-order steps; with FlowMatchEulerDiscreteScheduler level 0 is the stock pipeline, bit for bit in float32.
"""

# Shapes: B samples; C latent channels; f latent frames, 1 + (F - 1) / 4; h, w latent rows and columns; E text tokens.

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models import guidance
from digend.models.pipelines import check_folder, check_tokens, load_pipeline
from digend.models.shapes import check_frames, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import NEGATIVE, StockModel, denormalised, on_cpu, video_pixels
from digend.models.wan import WanOptions

_WEIGHTS = ("transformer", "vae", "text_encoder")


class WanModel(StockModel):
    """A loaded WanPipeline with one transformer, which learns."""

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: WanOptions) -> None:
        super().__init__(pipeline, path, dtype, options.negative_prompt)
        self._max_sequence_length = options.max_sequence_length

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
        latents = self._pipeline.prepare_latents(
            len(rngs),
            self._pipeline.transformer.config.in_channels,
            shape.height,
            shape.width,
            shape.num_frames,
            torch.float32,
            torch.device("cpu"),
            list(rngs),
        )
        return latents.to(self.device)  # type: ignore[no-any-return]

    def velocity(
        self,
        latents: Tensor,
        sigma: Tensor,
        conditions: Sequence[Condition],
        guidance_scale: float,
        shape: Shape,
    ) -> Tensor:
        """[B, C, f, h, w]."""
        return self._guided(self._pipeline.transformer, latents, sigma, conditions, guidance_scale)

    def _guided(
        self, transformer: Any, latents: Tensor, sigma: Tensor, conditions: Sequence[Condition], guidance_scale: float
    ) -> Tensor:
        hidden = latents.to(self.device, self._dtype)
        timestep = self._timestep(sigma)

        def one_pass(sign: str) -> Tensor:
            (velocity,) = transformer(
                hidden_states=hidden,
                timestep=timestep,
                encoder_hidden_states=self._stack(conditions, f"{sign}prompt_embeds"),
                return_dict=False,
            )
            return velocity  # type: ignore[no-any-return]

        return guidance.two_passes(lambda: one_pass(""), lambda: one_pass(NEGATIVE), guidance_scale, self.device)

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        """[B, F, 3, H, W], or [B, 3, H, W] for one frame."""
        vae = self._pipeline.vae
        with torch.no_grad():
            video = vae.decode(denormalised(latents, vae), return_dict=False)[0]
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
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, WanOptions)
    check_folder(path, "WanPipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    pipeline = load_pipeline(path, device, number_type)
    check_tokens(options.max_sequence_length, pipeline.tokenizer, f"{path}/tokenizer")
    if pipeline.transformer_2 is not None:
        raise ValueError(f'model.path: {path} holds two transformers (Wan2.2): model.family = "wan22" trains both')
    if pipeline.config.expand_timesteps:
        raise ValueError(f"model.path: {path} has a timestep for each token (Wan2.2 TI2V), which this family has not")
    return WanModel(pipeline, path, number_type, options)
