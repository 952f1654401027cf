"""How large a family's forward pass is, from its transformer's configuration and a job's shape: arithmetic, no torch.

Owns the estimate of activations. It is one: a layer that keeps 17 numbers for each token and channel is a transformer
layer with an MLP of four times the width (Korthikanti et al. 2022, without the terms of the attention matrix, which
fused kernels never store). Wider or gated layers keep more. No GPU was asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from digend.models.spec import Shape

LAYER_NUMBERS = 17
"""Numbers kept for each token and channel of a layer until its backward pass."""
VAE_FACTOR, VAE_FRAMES = 8, 4
"""Of every family's VAE, in space and in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Of one sample: tokens, channels, layers; passes whose activations are held at once (2 with guidance)."""

    tokens: int
    width: int
    layers: int
    passes: int = 1


def width_of(config: Mapping[str, Any]) -> int:
    return int(config["num_attention_heads"]) * int(config["attention_head_dim"])


def image_tokens(shape: Shape, patch: int = 2) -> int:
    """Of pictures and films: latent frames times patches of `patch` x `patch` latents."""
    frames = 1 + (shape.num_frames - 1) // VAE_FRAMES
    return frames * (shape.height // (VAE_FACTOR * patch)) * (shape.width // (VAE_FACTOR * patch))


def generating_bytes(geometry: Geometry, samples: int, item_bytes: int) -> int:
    """The activations of one layer at a time."""
    return _numbers(geometry, samples) * LAYER_NUMBERS * item_bytes


def training_bytes(geometry: Geometry, pairs: int, item_bytes: int, *, checkpointing: bool) -> int:
    """Those of all layers; with checkpointing the inputs of all layers and the activations of one."""
    kept = geometry.layers + LAYER_NUMBERS if checkpointing else geometry.layers * LAYER_NUMBERS
    return _numbers(geometry, pairs) * kept * item_bytes


def _numbers(geometry: Geometry, rows: int) -> int:
    return geometry.tokens * geometry.width * geometry.passes * rows
