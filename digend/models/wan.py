"""Wan2.1 (WanPipeline of diffusers, text to video and to image): options, LoRA targets, sharding units. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.models.geometry import Geometry, image_tokens, width_of
from digend.models.spec import ModelSpec, Shape

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


def geometry(config: Mapping[str, Any], shape: Shape, options: BaseModel, guidance_scale: float) -> Geometry:
    """The film; text is only looked at."""
    return Geometry(
        tokens=image_tokens(shape),
        width=width_of(config),
        layers=config["num_layers"],
        passes=2 if guidance_scale > 1 else 1,
    )


spec = ModelSpec(
    name="wan",
    options=WanOptions,
    lora_targets=LORA_TARGETS,
    sharding_units=("blocks",),
    geometry="digend.models.wan:geometry",
    loader="digend.models.wan_model:load",
    decoder="digend.models.wan_model:load_decoder",
)
