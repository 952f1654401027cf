"""The model families under test: how each one's tiny pipeline is built, loaded, sampled, and asked of the stock class.

What is here is checked alike for all of them (tests/models/checks.py, tests/engines/test_first_update.py, the matrix).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import BaseModel
from torch import Tensor

from digend.diffusion.kernels import transition
from digend.models.spec import Condition, Model, ModelSpec, Shape
from digend.plugins import load_object, model_spec
from tests import pipelines

MAX_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Family:
    """`sampling`: keys of the job's table; `stock`: further arguments of the stock pipeline's call, its guidance named
    by `guidance_argument`; `conditions`: what of a condition it takes, under the same names."""

    name: str
    build: Callable[[Path], Path]
    sampling: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=lambda: {"max_sequence_length": MAX_TOKENS})
    stock: Mapping[str, Any] = field(default_factory=lambda: {"max_sequence_length": MAX_TOKENS})
    guidance_argument: str = "guidance_scale"
    conditions: Sequence[str] = ()

    @property
    def spec(self) -> ModelSpec:
        return model_spec(self.name)

    @property
    def shape(self) -> Shape:
        frames = self.sampling.get("num_frames", 1)
        return Shape(height=self.sampling["height"], width=self.sampling["width"], num_frames=frames)

    @property
    def guidance_scale(self) -> float:
        return float(self.sampling["guidance_scale"])

    def tables(self, **changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Keywords of `job_config` for this family; `changes` on top."""
        tables: dict[str, dict[str, Any]] = {
            "model": {"family": self.name, "options": dict(self.options)},
            "sampling": dict(self.sampling),
        }
        for table, values in changes.items():
            tables.setdefault(table, {}).update(values)
        return tables

    def load(self, folder: Path, dtype: str = "float32", **options: Any) -> Model:
        spec = self.spec
        load = cast(Callable[[str, str, str, BaseModel], Model], load_object(spec.loader))
        return load(str(folder), "cpu", dtype, spec.options.model_validate({**self.options, **options}))

    def drawn(self, model: Model, conditions: Sequence[Condition], num_timesteps: int, seeds: Sequence[int]) -> Tensor:
        """Latents of deterministic steps."""
        sigmas = model.sigmas(num_timesteps, self.shape)
        latents = model.initial(rngs(seeds), self.shape)
        with torch.no_grad():
            for index in range(num_timesteps):
                at = torch.full((len(seeds),), sigmas[index])
                velocity = model.velocity(latents, at, conditions, self.guidance_scale, self.shape)
                step = transition(
                    kernel="flow_sde", sample=latents, velocity=velocity, sigmas=sigmas, index=index, level=0.0
                )
                latents = step.next_sample
        return latents

    def drawn_by_stock(
        self, pipeline: Any, num_timesteps: int, seeds: Sequence[int], output_type: str = "latent", **what: object
    ) -> Any:
        """What the stock pipeline's call returns first; `what`: prompt, or embeddings."""
        frames = {name: self.sampling[name] for name in ("num_frames",) if name in self.sampling}
        return pipeline(
            height=self.shape.height,
            width=self.shape.width,
            num_inference_steps=num_timesteps,
            generator=rngs(seeds),
            output_type=output_type,
            **{self.guidance_argument: self.guidance_scale},
            **self.stock,
            **frames,
            **what,
        )[0]


def rngs(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


_SIZE = {"height": 32, "width": 64}
_VIDEO = {"height": 32, "width": 32, "num_frames": 5}
_ONE = ("prompt_embeds", "negative_prompt_embeds")
_POOLED = ("prompt_embeds", "pooled_prompt_embeds")

FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="flux",
            build=pipelines.build_flux,
            sampling={**_SIZE, "guidance_scale": 3.5},
            conditions=_POOLED,
        ),
        Family(
            name="sd3",
            build=pipelines.build_sd3,
            sampling={**_SIZE, "guidance_scale": 4.5},
            conditions=(*_POOLED, "negative_prompt_embeds", "negative_pooled_prompt_embeds"),
        ),
        Family(
            name="qwen_image",
            build=pipelines.build_qwen_image,
            sampling={**_SIZE, "guidance_scale": 4.0},
            options={"max_sequence_length": 64},
            stock={"max_sequence_length": 64},
            guidance_argument="true_cfg_scale",
            conditions=_ONE,
        ),
        Family(
            name="wan",
            build=pipelines.build_wan,
            sampling={**_VIDEO, "guidance_scale": 5.0},
            conditions=_ONE,
        ),
        Family(
            name="wan22",
            build=pipelines.build_wan22,
            sampling={**_VIDEO, "guidance_scale": 4.0},
            options={"max_sequence_length": MAX_TOKENS, "guidance_scale_2": 3.0},
            stock={"max_sequence_length": MAX_TOKENS, "guidance_scale_2": 3.0},
            conditions=_ONE,
        ),
        Family(
            name="hunyuan_video",
            build=pipelines.build_hunyuan_video,
            sampling={**_VIDEO, "guidance_scale": 6.0},
            conditions=(*_POOLED, "prompt_attention_mask"),
        ),
    )
}


def folders_in(make: Callable[[str], Path]) -> Callable[[str], Path]:
    """A family's tiny pipeline by its name, built in a folder that `make` makes when it is first asked for."""
    torch.set_num_threads(1)
    return cache(lambda name: FAMILIES[name].build(make(name)))
