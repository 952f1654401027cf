"""HunyuanVideo (HunyuanVideoPipeline of diffusers, text to video): options and names of modules. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from digend.models.spec import ModelSpec


class HunyuanVideoOptions(BaseModel):
    """`model.options` of hunyuan_video."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=1024, description="Llama tokens a prompt is padded to, behind the template; masked.")
    ] = 256
    true_cfg_scale: Annotated[
        float, Field(ge=1, description="Above 1: a second pass, of negative_prompt. guidance_scale is embedded.")
    ] = 1.0
    negative_prompt: Annotated[str, Field(description="Of the unconditional pass, if there is one.")] = ""


spec = ModelSpec(
    name="hunyuan_video",
    options=HunyuanVideoOptions,
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
    loader="digend.models.hunyuan_video_model:load",
)
