"""Qwen-Image on the stock QwenImagePipeline, cut at the places where RL needs a handle.

Owns the family's conventions: sigmas shifted by mu of the packed image length and stretched to the checkpoint's
terminal value, timesteps over 1000, 2x2 packing, guidance as two passes and a rescaling to the conditional norm. A
prompt's embedding has the prompt's own length; a batch is padded and masked, and has no mask where all are equally
long. Invariant: deterministic steps from `initial` over `sigmas` with `velocity` give the stock pipeline's latents, bit
for bit in float32.
"""

# Shapes: B samples; S = (H / 16) * (W / 16) packed tokens; C = 4 * latent channels; E text tokens of a prompt.

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from digend.models import guidance
from digend.models.pipelines import check_folder, load_pipeline, load_vae
from digend.models.qwen_image import QwenImageOptions
from digend.models.shapes import check_one_frame, check_size
from digend.models.spec import Condition, Shape
from digend.models.stock import NEGATIVE, StockModel, denormalised, evenly

_WEIGHTS = ("transformer", "vae", "text_encoder")


class QwenImageModel(StockModel):
    """A loaded QwenImagePipeline; the transformer learns."""

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: QwenImageOptions) -> None:
        super().__init__(pipeline, path, dtype, options.negative_prompt)
        self._max_sequence_length = options.max_sequence_length

    def check(self, shape: Shape) -> None:
        check_one_frame(shape, "qwen_image")
        check_size(shape, self._pipeline.vae_scale_factor * 2)

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        rows, columns = self._grid(shape)
        mu = self._mu(rows * columns, max_shift=1.15)
        return self._scheduled(None, sigmas=evenly(num_timesteps), mu=mu)

    def initial(self, rngs: Sequence[torch.Generator], shape: Shape) -> Tensor:
        """[B, S, C]."""
        channels = self._pipeline.transformer.config.in_channels // 4
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
        """[B, S, C]."""
        hidden = latents.to(self.device, self._dtype)
        timestep = self._timestep(sigma).to(self._dtype) / 1000
        grid = [[(1, *self._grid(shape))]] * len(latents)

        def one_pass(sign: str) -> Tensor:
            embeds, mask = self._padded([condition[f"{sign}prompt_embeds"] for condition in conditions])
            (velocity,) = self._pipeline.transformer(
                hidden_states=hidden,
                timestep=timestep,
                guidance=None,
                encoder_hidden_states_mask=mask,
                encoder_hidden_states=embeds,
                img_shapes=grid,
                attention_kwargs={},
                return_dict=False,
            )
            return velocity  # type: ignore[no-any-return]

        if not guidance.is_on(guidance_scale):
            return one_pass("")
        return guidance.two_passes(
            lambda: one_pass(""), lambda: one_pass(NEGATIVE), guidance_scale, self.device, guidance.rescaled
        )

    def decode(self, latents: Tensor, shape: Shape) -> Tensor:
        vae = self._pipeline.vae
        unpacked = self._pipeline._unpack_latents(
            latents.to(self.device), shape.height, shape.width, self._pipeline.vae_scale_factor
        )
        with torch.no_grad():
            image = vae.decode(denormalised(unpacked, vae), return_dict=False)[0][:, :, 0]
        pixels: Tensor = self._pipeline.image_processor.postprocess(image, output_type="pt")
        return pixels.float().cpu()

    def _embed(self, prompts: list[str]) -> list[dict[str, Tensor]]:
        """prompt_embeds [E, D] a prompt, E its own length."""
        embeds, mask = self._pipeline.encode_prompt(
            prompts, device=self.device, max_sequence_length=self._max_sequence_length
        )
        lengths = [embeds.shape[1]] * len(embeds) if mask is None else mask.sum(1).tolist()
        return [{"prompt_embeds": row[:length].cpu().clone()} for row, length in zip(embeds, lengths, strict=True)]

    def _padded(self, embeds: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """[B, E, D] with zeros at the end, and the mask [B, E] of what is text."""
        lengths = torch.tensor([len(each) for each in embeds])
        padded = pad_sequence(list(embeds), batch_first=True).to(self.device, self._dtype)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        return padded, None if bool(mask.all()) else mask.long().to(self.device)

    def _grid(self, shape: Shape) -> tuple[int, int]:
        """Rows and columns of packed tokens."""
        patch = self._pipeline.vae_scale_factor * 2
        return shape.height // patch, shape.width // patch


def load(path: str, device: str, dtype: str, options: BaseModel) -> QwenImageModel:
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, QwenImageOptions)
    check_folder(path, "QwenImagePipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    return QwenImageModel(load_pipeline(path, device, number_type), path, number_type, options)


def load_decoder(path: str, device: str, dtype: str, options: BaseModel) -> QwenImageModel:
    """For `decode` alone. Raises OSError or ValueError that name the file."""
    assert isinstance(options, QwenImageOptions)
    check_folder(path, "QwenImagePipeline", ("vae",))
    number_type: torch.dtype = getattr(torch, dtype)
    return QwenImageModel(load_vae(path, device, number_type), path, number_type, options)
