"""The FLUX family (FluxPipeline of diffusers): options, LoRA targets and the name of its loader. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.models.attention import DOUBLE_STREAM
from digend.models.geometry import Geometry, image_tokens, width_of
from digend.models.spec import ModelSpec, Shape


class FluxOptions(BaseModel):
    """`model.options` of flux."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sequence_length: Annotated[
        int, Field(ge=1, le=512, description="T5 tokens a prompt is padded to; not masked, so part of the model.")
    ] = 512


def geometry(config: Mapping[str, Any], shape: Shape, options: BaseModel, guidance_scale: float) -> Geometry:
    """Text and picture in one sequence, padded text included."""
    assert isinstance(options, FluxOptions)
    layers = config["num_layers"] + config["num_single_layers"]
    return Geometry(tokens=image_tokens(shape) + options.max_sequence_length, width=width_of(config), layers=layers)


spec = ModelSpec(
    name="flux",
    options=FluxOptions,
    lora_targets=DOUBLE_STREAM,
    sharding_units=("transformer_blocks", "single_transformer_blocks"),
    geometry="digend.models.flux:geometry",
    loader="digend.models.flux_model:load",
    decoder="digend.models.flux_model:load_decoder",
)
