"""HunyuanVideo on the stock HunyuanVideoPipeline, cut at the places where RL needs a handle.

Owns the family's conventions: sigmas linspace(1, 0, T + 1) without the last, shifted by the scheduler; timesteps of
1000 sigma; guidance embedded as 1000 times its scale, and a second pass only where `true_cfg_scale` asks for one;
prompts padded to one length with a mask. Invariant: deterministic steps from `initial` over `sigmas` with `velocity`
give the stock pipeline's latents, bit for bit in float32.
"""

# Shapes: B samples; C latent channels; f latent frames, 1 + (F - 1) / 4; h, w latent rows and columns; E text tokens.

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models import guidance
from digend.models.hunyuan_video import HunyuanVideoOptions
from digend.models.pipelines import check_folder, load_pipeline, load_vae
from digend.models.shapes import check_frames, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import NEGATIVE, StockModel, on_cpu, video_pixels

_WEIGHTS = ("transformer", "vae", "text_encoder", "text_encoder_2")


class HunyuanVideoModel(StockModel):
    """A loaded HunyuanVideoPipeline; the transformer learns."""

    encoders = ("text_encoder", "text_encoder_2")

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: HunyuanVideoOptions) -> None:
        guided = guidance.is_on(options.true_cfg_scale)
        super().__init__(pipeline, path, dtype, options.negative_prompt if guided else None)
        self._max_sequence_length = options.max_sequence_length
        self._true_cfg_scale = options.true_cfg_scale

    def check(self, shape: Shape) -> None:
        patch = self._pipeline.transformer.config.patch_size
        check_frames(shape, self._pipeline.vae_scale_factor_temporal)
        check_size(shape, max(16, self._pipeline.vae_scale_factor_spatial * patch))

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        return self._scheduled(None, sigmas=np.linspace(1.0, 0.0, num_timesteps + 1)[:-1])

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
        """[B, C, f, h, w]."""
        hidden = latents.to(self.device, self._dtype)
        timestep = self._timestep(sigma)
        embedded = torch.tensor([guidance_scale] * len(latents), dtype=self._dtype, device=self.device) * 1000.0

        def one_pass(sign: str) -> Tensor:
            (velocity,) = self._pipeline.transformer(
                hidden_states=hidden,
                timestep=timestep,
                encoder_hidden_states=self._stack(conditions, f"{sign}prompt_embeds"),
                encoder_attention_mask=self._stack(conditions, f"{sign}prompt_attention_mask"),
                pooled_projections=self._stack(conditions, f"{sign}pooled_prompt_embeds"),
                guidance=embedded,
                return_dict=False,
            )
            return velocity  # type: ignore[no-any-return]

        if not guidance.is_on(self._true_cfg_scale):
            return one_pass("")
        return guidance.two_passes(lambda: one_pass(""), lambda: one_pass(NEGATIVE), self._true_cfg_scale, self.device)

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        """[B, F, 3, H, W], or [B, 3, H, W] for one frame."""
        vae = self._pipeline.vae
        with torch.no_grad():
            video = vae.decode(latents.to(self.device, vae.dtype) / vae.config.scaling_factor, return_dict=False)[0]
        return video_pixels(self._pipeline, video, shape)

    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """prompt_embeds [E, D], prompt_attention_mask [E] and pooled_prompt_embeds [D'] a prompt."""
        embeds, pooled, mask = self._pipeline.encode_prompt(
            prompts, device=self.device, max_sequence_length=self._max_sequence_length
        )
        return on_cpu(prompt_embeds=embeds, pooled_prompt_embeds=pooled, prompt_attention_mask=mask)


def load(path: str, device: str, dtype: str, options: BaseModel) -> HunyuanVideoModel:
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, HunyuanVideoOptions)
    check_folder(path, "HunyuanVideoPipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    return HunyuanVideoModel(load_pipeline(path, device, number_type), path, number_type, options)


def load_decoder(path: str, device: str, dtype: str, options: BaseModel) -> HunyuanVideoModel:
    """For `decode` alone. Raises OSError or ValueError that name the file."""
    assert isinstance(options, HunyuanVideoOptions)
    check_folder(path, "HunyuanVideoPipeline", ("vae",))
    number_type: torch.dtype = getattr(torch, dtype)
    return HunyuanVideoModel(load_vae(path, device, number_type), path, number_type, options)
