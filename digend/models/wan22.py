"""Wan2.2's two transformers (A14B, text to video): one draws at high noise, one at low, and both learn. Torch-free."""

from typing import Annotated

from pydantic import Field

from digend.models.spec import ModelSpec
from digend.models.wan import LORA_TARGETS, WanOptions


class Wan22Options(WanOptions):
    """`model.options` of wan22."""

    guidance_scale_2: Annotated[
        float | None, Field(ge=0, description="Guidance of the low-noise transformer; sampling's where missing.")
    ] = None


spec = ModelSpec(
    name="wan22",
    options=Wan22Options,
    lora_targets=LORA_TARGETS,
    trainable=("transformer", "transformer_2"),
    experts=True,
    sharding_units=("blocks",),
    geometry="digend.models.wan:geometry",
    loader="digend.models.wan_model:load_two",
    decoder="digend.models.wan_model:load_decoder",
)
