"""Qwen-Image (QwenImagePipeline of diffusers): options, LoRA targets, sharding units. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.models.attention import DOUBLE_STREAM
from digend.models.geometry import Geometry, image_tokens, width_of
from digend.models.spec import ModelSpec, Shape


class QwenImageOptions(BaseModel):
    """`model.options` of qwen_image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=1024, description="Text tokens after which a prompt is cut; it is not padded to them.")
    ] = 512
    negative_prompt: Annotated[
        str, Field(description="Of the unconditional pass, which a guidance_scale above 1 brings.")
    ] = " "


def geometry(config: Mapping[str, Any], shape: Shape, options: BaseModel, guidance_scale: float) -> Geometry:
    """The longest text there may be, and the picture."""
    assert isinstance(options, QwenImageOptions)
    return Geometry(
        tokens=image_tokens(shape) + options.max_sequence_length,
        width=width_of(config),
        layers=config["num_layers"],
        passes=2 if guidance_scale > 1 else 1,
    )


spec = ModelSpec(
    name="qwen_image",
    options=QwenImageOptions,
    lora_targets=DOUBLE_STREAM,
    sharding_units=("transformer_blocks",),
    geometry="digend.models.qwen_image:geometry",
    loader="digend.models.qwen_image_model:load",
    decoder="digend.models.qwen_image_model:load_decoder",
)
