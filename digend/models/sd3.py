"""Stable Diffusion 3 and 3.5 (StableDiffusion3Pipeline of diffusers): options and names of modules. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from digend.models.spec import ModelSpec


class Sd3Options(BaseModel):
    """`model.options` of sd3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=512, description="T5 tokens a prompt is padded to; not masked, so part of the model.")
    ] = 256
    negative_prompt: Annotated[
        str, Field(description="Of the unconditional pass, which a guidance_scale above 1 brings.")
    ] = ""


spec = ModelSpec(
    name="sd3",
    options=Sd3Options,
    lora_targets=(
        "attn.to_q",
        "attn.to_k",
        "attn.to_v",
        "attn.to_out.0",
        "attn.add_q_proj",
        "attn.add_k_proj",
        "attn.add_v_proj",
        "attn.to_add_out",
    ),
    sharding_units=("transformer_blocks",),
    loader="digend.models.sd3_model:load",
)
