"""HunyuanVideo (HunyuanVideoPipeline of diffusers, text to video): options and names of modules. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.models.attention import DOUBLE_STREAM
from digend.models.geometry import Geometry, image_tokens, width_of
from digend.models.spec import ModelSpec, Shape


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


def geometry(config: Mapping[str, Any], shape: Shape, options: BaseModel, guidance_scale: float) -> Geometry:
    """Text and film in one sequence."""
    assert isinstance(options, HunyuanVideoOptions)
    return Geometry(
        tokens=image_tokens(shape, config["patch_size"]) + options.max_sequence_length,
        width=width_of(config),
        layers=config["num_layers"] + config["num_single_layers"],
        passes=2 if options.true_cfg_scale > 1 else 1,
    )


spec = ModelSpec(
    name="hunyuan_video",
    options=HunyuanVideoOptions,
    lora_targets=DOUBLE_STREAM,
    sharding_units=("transformer_blocks", "single_transformer_blocks"),
    geometry="digend.models.hunyuan_video:geometry",
    loader="digend.models.hunyuan_video_model:load",
    decoder="digend.models.hunyuan_video_model:load_decoder",
)
