"""FLUX on the stock FluxPipeline: what the pipeline's `__call__` does, cut at the places where RL needs a handle.

Owns the family's conventions: sigmas from the pipeline's scheduler with mu of the packed image length, timesteps over
1000 in the latents' type, guidance as an embedding, 2x2 packing, the VAE's shift and scale. Invariant: deterministic
steps from `initial` over `sigmas` with `velocity` give the stock pipeline's latents, bit for bit in float32.
"""

# Shapes: B samples; S = (H / 16) * (W / 16) packed tokens for a VAE of factor 8; C = 4 * latent channels; E tokens.

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models.flux import FluxOptions
from digend.models.pipelines import check_folder, check_tokens, load_pipeline, load_vae
from digend.models.shapes import check_one_frame, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import StockModel, evenly, on_cpu

_WEIGHTS = ("transformer", "vae", "text_encoder", "text_encoder_2")


class FluxModel(StockModel):
    """A loaded FluxPipeline; the transformer learns."""

    encoders = ("text_encoder", "text_encoder_2")

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: FluxOptions) -> None:
        super().__init__(pipeline, path, dtype)
        self._max_sequence_length = options.max_sequence_length

    def check(self, shape: Shape) -> None:
        check_one_frame(shape, "flux")
        check_size(shape, self._pipeline.vae_scale_factor * 2)

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        rows, columns = self._grid(shape)
        mu = self._mu(rows * columns, max_shift=1.15)
        return self._scheduled(None, sigmas=evenly(num_timesteps), mu=mu)

    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """prompt_embeds [E, D] and pooled_prompt_embeds [D'] a prompt."""
        embeds, pooled, _ = self._pipeline.encode_prompt(
            prompts, None, device=self.device, max_sequence_length=self._max_sequence_length
        )
        return on_cpu(prompt_embeds=embeds, pooled_prompt_embeds=pooled)

    def initial(self, rngs: Sequence[torch.Generator], shape: Shape) -> Tensor:
        channels = self._pipeline.transformer.config.in_channels // 4
        latents, _ = self._pipeline.prepare_latents(
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
        """[B, S, C]. Sigmas reach the transformer as the pipeline's timesteps do: 1000 sigma in float32, then cast."""
        timestep = self._timestep(sigma).to(self._dtype)
        embeds, pooled = self._stack(conditions, "prompt_embeds"), self._stack(conditions, "pooled_prompt_embeds")
        rows, columns = self._grid(shape)
        transformer = self._pipeline.transformer
        guidance = None
        if transformer.config.guidance_embeds:
            guidance = torch.full([1], guidance_scale, device=self.device, dtype=torch.float32)
            guidance = guidance.expand(latents.shape[0])
        (velocity,) = transformer(
            hidden_states=latents.to(self.device, self._dtype),
            timestep=timestep / 1000,
            guidance=guidance,
            pooled_projections=pooled,
            encoder_hidden_states=embeds,
            txt_ids=torch.zeros(embeds.shape[1], 3, device=self.device, dtype=self._dtype),
            img_ids=self._pipeline._prepare_latent_image_ids(1, rows, columns, self.device, self._dtype),
            return_dict=False,
        )
        return velocity  # type: ignore[no-any-return]

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        vae = self._pipeline.vae
        unpacked = self._pipeline._unpack_latents(
            latents.to(self.device, vae.dtype), shape.height, shape.width, self._pipeline.vae_scale_factor
        )
        with torch.no_grad():
            image = vae.decode((unpacked / vae.config.scaling_factor) + vae.config.shift_factor, return_dict=False)[0]
        pixels: Tensor = self._pipeline.image_processor.postprocess(image, output_type="pt")
        return pixels.float().cpu()

    def _grid(self, shape: Shape) -> tuple[int, int]:
        """Rows and columns of packed tokens."""
        patch = self._pipeline.vae_scale_factor * 2
        return shape.height // patch, shape.width // patch


def load(path: str, device: str, dtype: str, options: BaseModel) -> FluxModel:
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, FluxOptions)
    check_folder(path, "FluxPipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    pipeline = load_pipeline(path, device, number_type)
    check_tokens(options.max_sequence_length, pipeline.tokenizer_2, f"{path}/tokenizer_2")
    return FluxModel(pipeline, path, number_type, options)


def load_decoder(path: str, device: str, dtype: str, options: BaseModel) -> FluxModel:
    """For `decode` alone. Raises OSError or ValueError that name the file."""
    assert isinstance(options, FluxOptions)
    check_folder(path, "FluxPipeline", ("vae",))
    number_type: torch.dtype = getattr(torch, dtype)
    return FluxModel(load_vae(path, device, number_type), path, number_type, options)
