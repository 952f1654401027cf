"""Stable Diffusion 3 and 3.5 on the stock StableDiffusion3Pipeline, cut at the places where RL needs a handle.

Owns the family's conventions: the scheduler's own sigmas (shifted twice at both ends, as flow_grpo has them; with mu
where the checkpoint shifts by resolution), timesteps of 1000 sigma, guidance as one batch of negative and positive
prompts. Invariant: deterministic steps from `initial` over `sigmas` with `velocity` give the stock pipeline's latents,
bit for bit in float32.
"""

# Shapes: B samples; C latent channels; h, w latent rows and columns (H / 8, W / 8); E text tokens.

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models import guidance
from digend.models.pipelines import check_folder, check_tokens, load_pipeline, load_vae
from digend.models.sd3 import Sd3Options
from digend.models.shapes import check_one_frame, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import NEGATIVE, StockModel, on_cpu

_WEIGHTS = ("transformer", "vae", "text_encoder", "text_encoder_2")


class Sd3Model(StockModel):
    """A loaded StableDiffusion3Pipeline; the transformer learns."""

    encoders = ("text_encoder", "text_encoder_2", "text_encoder_3")

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: Sd3Options) -> None:
        super().__init__(pipeline, path, dtype, options.negative_prompt)
        self._max_sequence_length = options.max_sequence_length

    def check(self, shape: Shape) -> None:
        config = self._pipeline.transformer.config
        patch = self._pipeline.vae_scale_factor * config.patch_size
        check_one_frame(shape, "sd3")
        check_size(shape, patch, largest=config.pos_embed_max_size * patch)

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        if not self._pipeline.scheduler.config.get("use_dynamic_shifting"):
            return self._scheduled(num_timesteps)
        patch = self._pipeline.vae_scale_factor * self._pipeline.transformer.config.patch_size
        tokens = (shape.height // patch) * (shape.width // patch)
        return self._scheduled(num_timesteps, mu=self._mu(tokens, max_shift=1.16))

    def initial(self, rngs: Sequence[torch.Generator], shape: Shape) -> Tensor:
        """[B, C, h, w]."""
        channels = self._pipeline.transformer.config.in_channels
        latents = self._pipeline.prepare_latents(
            len(rngs), channels, shape.height, shape.width, torch.float32, torch.device("cpu"), list(rngs)
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
        """[B, C, h, w]. With guidance, negative and positive prompts share one forward pass of 2 B."""
        guided = guidance.is_on(guidance_scale)
        signs = (NEGATIVE, "") if guided else ("",)
        (velocity,) = self._pipeline.transformer(
            hidden_states=torch.cat([latents.to(self.device, self._dtype)] * len(signs)),
            timestep=torch.cat([self._timestep(sigma)] * len(signs)),
            encoder_hidden_states=torch.cat([self._stack(conditions, f"{sign}prompt_embeds") for sign in signs]),
            pooled_projections=torch.cat([self._stack(conditions, f"{sign}pooled_prompt_embeds") for sign in signs]),
            return_dict=False,
        )
        if not guided:
            return velocity  # type: ignore[no-any-return]
        unconditional, conditional = velocity.chunk(2)
        return guidance.combined(conditional, unconditional, guidance_scale)

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        vae = self._pipeline.vae
        with torch.no_grad():
            scaled = (latents.to(self.device, vae.dtype) / vae.config.scaling_factor) + vae.config.shift_factor
            image = vae.decode(scaled, return_dict=False)[0]
        pixels: Tensor = self._pipeline.image_processor.postprocess(image, output_type="pt")
        return pixels.float().cpu()

    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """prompt_embeds [E, D] and pooled_prompt_embeds [D'] a prompt."""
        embeds, _, pooled, _ = self._pipeline.encode_prompt(
            prompts,
            None,
            None,
            device=self.device,
            do_classifier_free_guidance=False,
            max_sequence_length=self._max_sequence_length,
        )
        return on_cpu(prompt_embeds=embeds, pooled_prompt_embeds=pooled)


def load(path: str, device: str, dtype: str, options: BaseModel) -> Sd3Model:
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, Sd3Options)
    check_folder(path, "StableDiffusion3Pipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    pipeline = load_pipeline(path, device, number_type)
    if pipeline.tokenizer_3 is not None:
        check_tokens(options.max_sequence_length, pipeline.tokenizer_3, f"{path}/tokenizer_3")
    return Sd3Model(pipeline, path, number_type, options)


def load_decoder(path: str, device: str, dtype: str, options: BaseModel) -> Sd3Model:
    """For `decode` alone. Raises OSError or ValueError that name the file."""
    assert isinstance(options, Sd3Options)
    check_folder(path, "StableDiffusion3Pipeline", ("vae",))
    number_type: torch.dtype = getattr(torch, dtype)
    return Sd3Model(load_vae(path, device, number_type), path, number_type, options)
