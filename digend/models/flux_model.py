"""FLUX on the stock FluxPipeline: what the pipeline's `__call__` does, cut at the places where RL needs a handle.

Owns the family's conventions: sigmas from the pipeline's scheduler with mu of the packed image length, timesteps over
1000 in the latents' type, guidance as an embedding, 2x2 packing, the VAE's shift and scale. Invariant: deterministic
steps from `initial` over `sigmas` with `velocity` give the stock pipeline's latents, bit for bit in float32.
"""

# Shapes: B samples; S = (H / 16) * (W / 16) packed tokens for a VAE of factor 8; C = 4 * latent channels; E tokens.

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.models.flux import FluxOptions
from digend.models.pipelines import check_folder, load_pipeline, save_adapter, save_pipeline
from digend.models.spec import Condition, Shape

_WEIGHTS = ("transformer", "vae", "text_encoder", "text_encoder_2")


class FluxModel:
    """A loaded FluxPipeline; the transformer learns."""

    def __init__(self, pipeline: Any, path: str, dtype: torch.dtype, options: FluxOptions) -> None:
        self._pipeline = pipeline
        self._path = path
        self._dtype = dtype
        self._device: torch.device = pipeline.transformer.device
        self._max_sequence_length = options.max_sequence_length

    @property
    def trainable(self) -> Mapping[str, torch.nn.Module]:
        return {"transformer": self._pipeline.transformer}

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def check(self, shape: Shape) -> None:
        if shape.num_frames != 1:
            raise ValueError(f"sampling.num_frames = {shape.num_frames}: flux draws images, 1 frame")
        multiple = self._pipeline.vae_scale_factor * 2
        for name, size in (("height", shape.height), ("width", shape.width)):
            if size % multiple:
                near = max(multiple, round(size / multiple) * multiple)
                raise ValueError(
                    f"sampling.{name} = {size} is no multiple of {multiple}, which this model needs; nearest is {near}"
                )

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        import numpy as np
        from diffusers.pipelines.flux.pipeline_flux import calculate_shift

        scheduler = self._pipeline.scheduler
        rows, columns = self._grid(shape)
        knobs = {
            "base_seq_len": scheduler.config.get("base_image_seq_len", 256),
            "max_seq_len": scheduler.config.get("max_image_seq_len", 4096),
            "base_shift": scheduler.config.get("base_shift", 0.5),
            "max_shift": scheduler.config.get("max_shift", 1.15),
        }
        evenly = np.linspace(1.0, 1 / num_timesteps, num_timesteps)
        scheduler.set_timesteps(sigmas=evenly, mu=calculate_shift(rows * columns, **knobs))
        values: list[float] = scheduler.sigmas.tolist()
        return values

    def encode(self, prompts: Sequence[str]) -> list[Condition]:
        """prompt_embeds [E, D] and pooled_prompt_embeds [D'] a prompt, on the CPU."""
        with torch.no_grad():
            embeds, pooled, _ = self._pipeline.encode_prompt(
                list(prompts), None, device=self.device, max_sequence_length=self._max_sequence_length
            )
        return [
            {"prompt_embeds": each.cpu().clone(), "pooled_prompt_embeds": one.cpu().clone()}
            for each, one in zip(embeds, pooled, strict=True)
        ]

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
        timestep = (sigma.float() * self._pipeline.scheduler.config.num_train_timesteps).to(self.device, self._dtype)
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
            latents.to(vae.dtype), shape.height, shape.width, self._pipeline.vae_scale_factor
        )
        with torch.no_grad():
            image = vae.decode((unpacked / vae.config.scaling_factor) + vae.config.shift_factor, return_dict=False)[0]
        pixels: Tensor = self._pipeline.image_processor.postprocess(image, output_type="pt")
        return pixels.float().cpu()

    def save(self, folder: str) -> None:
        save_pipeline(self._path, folder, self.trainable)

    def save_adapter(self, folder: str) -> None:
        save_adapter(self._pipeline, folder, self.trainable)

    def unload_encoders(self) -> None:
        self._pipeline.register_modules(text_encoder=None, text_encoder_2=None)

    def _grid(self, shape: Shape) -> tuple[int, int]:
        """Rows and columns of packed tokens."""
        patch = self._pipeline.vae_scale_factor * 2
        return shape.height // patch, shape.width // patch

    def _stack(self, conditions: Sequence[Condition], name: str) -> Tensor:
        return torch.stack([condition[name] for condition in conditions]).to(self.device, self._dtype)


def load(path: str, device: str, dtype: str, options: BaseModel) -> FluxModel:
    """Raises OSError or ValueError that name the file or the option."""
    assert isinstance(options, FluxOptions)
    check_folder(path, "FluxPipeline", _WEIGHTS)
    number_type: torch.dtype = getattr(torch, dtype)
    pipeline = load_pipeline(path, device, number_type)
    allowed = pipeline.tokenizer_2.model_max_length
    if options.max_sequence_length > allowed:
        raise ValueError(
            f"model.options.max_sequence_length = {options.max_sequence_length} is more than the {allowed} tokens "
            f"that {path}/tokenizer_2 allows"
        )
    return FluxModel(pipeline, path, number_type, options)
