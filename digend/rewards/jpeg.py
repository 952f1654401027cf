"""Rewards by JPEG size: `jpeg_compressibility` and its opposite. Fast, unmistakable, and ruinous: for tests.

Owns the formula -(bytes of JPEG at quality 95 / 1000) / 500 (Flow-GRPO's; DDPO's task). It ignores prompts. A
video's reward is the mean over its frames.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pydantic import BaseModel

from digend.rewards.spec import Batch, NoOptions, Reward, RewardSpec, Scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUALITY = 95
BYTES_PER_KILOBYTE = 1000
SCALE = 500


class JpegSize:
    """`sign` times the size in units of 500 kB; reports the size in kB as a component."""

    def __init__(self, sign: float) -> None:
        self._sign = sign

    def score(self, batch: Batch) -> Scores:
        kilobytes = [measure_kilobytes(sample) for sample in batch.pixels]
        values = [self._sign * each / SCALE for each in kilobytes]
        return Scores(values=values, components={"kilobytes": kilobytes})


def measure_kilobytes(pixels: NDArray[np.float32]) -> float:
    """JPEG size of one image [3, H, W], or mean size of a video's frames [F, 3, H, W], in 1000 bytes."""
    import numpy as np

    frames = pixels[None] if pixels.ndim == 3 else pixels
    rounded = np.rint(np.clip(frames, 0, 1) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    return sum(_encode(frame) for frame in rounded) / len(rounded) / BYTES_PER_KILOBYTE


def _encode(frame: NDArray[np.uint8]) -> int:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="JPEG", quality=QUALITY)
    return buffer.tell()


def build_compressibility(options: BaseModel, device: str) -> Reward:
    """Larger is smaller on disk: always negative."""
    return JpegSize(-1.0)


def build_incompressibility(options: BaseModel, device: str) -> Reward:
    """Larger is larger on disk: always positive."""
    return JpegSize(1.0)


compressibility = RewardSpec(
    name="jpeg_compressibility", options=NoOptions, builder="digend.rewards.jpeg:build_compressibility"
)
incompressibility = RewardSpec(
    name="jpeg_incompressibility", options=NoOptions, builder="digend.rewards.jpeg:build_incompressibility"
)
