"""Wan2.1 (WanPipeline of diffusers, text to video and to image): options, LoRA targets, sharding units. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from digend.models.spec import ModelSpec

LORA_TARGETS = tuple(f"attn{number}.{name}" for number in (1, 2) for name in ("to_q", "to_k", "to_v", "to_out.0"))


class WanOptions(BaseModel):
    """`model.options` of wan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=512, description="UMT5 tokens a prompt is padded to, with zeros: part of the model.")
    ] = 512
    negative_prompt: Annotated[
        str, Field(description="Of the unconditional pass, which a guidance_scale above 1 brings.")
    ] = ""


spec = ModelSpec(
    name="wan",
    options=WanOptions,
    lora_targets=LORA_TARGETS,
    sharding_units=("blocks",),
    loader="digend.models.wan_model:load",
)
