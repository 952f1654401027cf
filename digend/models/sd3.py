"""Stable Diffusion 3 and 3.5 (StableDiffusion3Pipeline of diffusers): options and names of modules. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.models.attention import DOUBLE_STREAM
from digend.models.geometry import Geometry, image_tokens, width_of
from digend.models.spec import ModelSpec, Shape


class Sd3Options(BaseModel):
    """`model.options` of sd3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=512, description="T5 tokens a prompt is padded to; not masked, so part of the model.")
    ] = 256
    negative_prompt: Annotated[
        str, Field(description="Of the unconditional pass, which a guidance_scale above 1 brings.")
    ] = ""


def geometry(config: Mapping[str, Any], shape: Shape, options: BaseModel, guidance_scale: float) -> Geometry:
    """Text of CLIP and T5, and the picture; with guidance twice the rows."""
    assert isinstance(options, Sd3Options)
    return Geometry(
        tokens=image_tokens(shape, config["patch_size"]) + 77 + options.max_sequence_length,
        width=width_of(config),
        layers=config["num_layers"],
        passes=2 if guidance_scale > 1 else 1,
    )


spec = ModelSpec(
    name="sd3",
    options=Sd3Options,
    lora_targets=DOUBLE_STREAM,
    sharding_units=("transformer_blocks",),
    geometry="digend.models.sd3:geometry",
    loader="digend.models.sd3_model:load",
    decoder="digend.models.sd3_model:load_decoder",
)
