"""Where a job's figures go: said by its job file, and for what that leaves out by the settings of the box it comes
from. Knows no tracker."""

from typing import Annotated, Literal

from pydantic import Field

from digend.config.section import Section

Word = Annotated[str, Field(min_length=1)]


class TrackingConfig(Section, strict=True):
    """Where figures go, beside the report. What fails here never harms the run; status and report say so."""

    use: list[Literal["jsonl", "tensorboard", "wandb"]] = Field(
        ["jsonl", "tensorboard"],
        description="metrics.jsonl and tensorboard/ of the run folder; wandb, where the recorder has `digend[wandb]`.",
    )
    project: Word = Field("digend", description="Project in W&B.")
    entity: Word | None = Field(None, description="User or team in W&B; that of the key where missing.")
    mode: Literal["online", "offline"] | None = Field(
        None, description="Of W&B; what WANDB_MODE says to the recorder where missing."
    )
