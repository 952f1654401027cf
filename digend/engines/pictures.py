"""Latents to pixels, on whoever decodes: the generator, or with `schedule.decode = "reward"` the reward process.

Owns the rounding and the names under which a sample's pixels, or its last latents, are served. Invariant: the same
latents give the same pixels wherever they are decoded on one kind of device.
"""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from digend.config.job import JobConfig
from digend.engines.arrays import to_tensor
from digend.engines.protocols import TaskFault
from digend.hub import local_folder
from digend.models.spec import Decoder, Shape
from digend.plugins import load_object, model_spec, validate_options
from digend.wire.tensors import Array

Load = Callable[[str, str, str, BaseModel], Decoder]


def shape_of(config: JobConfig) -> Shape:
    sampling = config.sampling
    return Shape(height=sampling.height, width=sampling.width, num_frames=sampling.num_frames)


def to_pixels(decoder: Decoder, latents: Tensor, shape: Shape) -> Tensor:
    """uint8 [B, 3, H, W] or [B, F, 3, H, W], rounded as the stock pipeline rounds its pictures."""
    return (decoder.decode(latents, shape) * 255).round().to(torch.uint8)


def is_decoded_by_reward(config: JobConfig, purpose: str) -> bool:
    """What is evaluated is looked at, so whoever makes it decodes it."""
    return config.schedule.decode == "reward" and purpose == "train"


class LatePictures:
    """The decoder of a process that only scores."""

    def __init__(self, config: JobConfig, device: str) -> None:
        """Raises TaskFault("config") for a family without one, TaskFault("model") for the folder."""
        spec = model_spec(config.model.family)
        if not spec.decoder:
            raise TaskFault("config", f'schedule.decode = "reward": {spec.name} decodes where it is generated only')
        load = cast(Load, load_object(spec.decoder))
        options = validate_options(spec, config.model.options, "model.options")
        try:
            self._decoder = load(str(local_folder(config.model.path)), device, config.model.dtype, options)
        except (OSError, ValueError) as error:
            raise TaskFault("model", str(error)) from error
        for key in ("vae_tiling", "vae_slicing"):
            if getattr(config.model.memory, key):
                getattr(self._decoder, f"enable_{key}")()
        self._shape = shape_of(config)

    def decode(self, latents: Sequence[Array]) -> list[NDArray[np.uint8]]:
        """One [3, H, W] or [F, 3, H, W] a sample."""
        stacked = torch.stack([to_tensor(each) for each in latents])
        pixels: NDArray[np.uint8] = to_pixels(self._decoder, stacked, self._shape).numpy()
        return list(pixels)
