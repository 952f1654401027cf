"""The small CNN that reads colour and shape from a 16x16 drawing, and its two shipped sets of weights.

Owns the architecture and the way from a file of package data to probabilities; imports torch, so the
torch-free spec modules import it late. Two classifiers with different data, width and seed exist: the reward
may only ever use REWARD_CLASSIFIER, evaluation alone uses INDEPENDENT_CLASSIFIER. scripts/assets trains both.

Shapes: B samples, 3 RGB channels, H = W = 16.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor, nn

from digend.rewards.shapes_data import COLOUR_NAMES, SHAPES, SIZE, Caption

REWARD_CLASSIFIER = "shapes_classifier"
INDEPENDENT_CLASSIFIER = "shapes_independent"
HIDDEN = 96


class Probabilities(NamedTuple):
    """Probability [B] of the colour and of the shape that each sample's prompt asked for."""

    colour: Tensor
    shape: Tensor


class ShapesClassifier(nn.Module):
    """Pixels [B, 3, 16, 16] in [-1, 1] to colour logits [B, 6] and shape logits [B, 6]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1, stride=2),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, stride=2),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * (SIZE // 4) ** 2, HIDDEN),
            nn.SiLU(),
        )
        self.colour = nn.Linear(HIDDEN, len(COLOUR_NAMES))
        self.shape = nn.Linear(HIDDEN, len(SHAPES))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(pixels)
        return self.colour(features), self.shape(features)


def load_classifier(name: str) -> ShapesClassifier:
    """One of the two shipped classifiers, frozen, in eval mode, on the CPU."""
    data = resources.files("digend.rewards") / "data"
    card = json.loads((data / f"{name}.json").read_text(encoding="utf-8"))
    # Initial weights are overwritten at once: making them must not move the caller's random stream.
    with torch.random.fork_rng(devices=[]):
        classifier = ShapesClassifier(int(card["width"]))
    classifier.load_state_dict(load((data / f"{name}.safetensors").read_bytes()))
    return classifier.eval().requires_grad_(False)


@torch.no_grad()
def classify(classifier: ShapesClassifier, pixels: Tensor, captions: list[Caption]) -> Probabilities:
    """Probabilities that pixels [B, 3, 16, 16] in [0, 1] show what the captions ask for."""
    colour_logits, shape_logits = classifier(to_signed(pixels))
    return Probabilities(
        _pick(colour_logits, [caption.colour for caption in captions]),
        _pick(shape_logits, [caption.shape for caption in captions]),
    )


def to_signed(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1] to fp32 in [-1, 1], clamped."""
    return (pixels.float() * 2 - 1).clamp(-1, 1)


def _pick(logits: Tensor, classes: list[int]) -> Tensor:
    index = torch.tensor(classes, device=logits.device)[:, None]
    return logits.softmax(1).gather(1, index)[:, 0]
