"""The FLUX family (FluxPipeline of diffusers): options, LoRA targets and the name of its loader. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from digend.models.spec import ModelSpec


class FluxOptions(BaseModel):
    """`model.options` of flux."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=512, description="T5 tokens a prompt is padded to; not masked, so part of the model.")
    ] = 512


spec = ModelSpec(
    name="flux",
    options=FluxOptions,
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
    sharding_units=("transformer_blocks", "single_transformer_blocks"),
    loader="digend.models.flux_model:load",
)
