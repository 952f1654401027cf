"""The arithmetic of the demo's rewards: pixels and captions in, one fp32 score a sample out.

Owns the two scorers, which load their classifier when made. Knows nothing of plug-ins, jobs or samples'
names. Invariant: the independent classifier never enters a reward. All work is on the
CPU.

Shapes: B samples, pixels [B, 3, 16, 16] in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digend.rewards.shapes_classifier import (
    INDEPENDENT_CLASSIFIER,
    REWARD_CLASSIFIER,
    Probabilities,
    classify,
    load_classifier,
)
from digend.rewards.shapes_data import SIZE, Caption, parse_caption
from digend.rewards.shapes_templates import TemplateBank

CLASSIFIER_SHARE = 0.5


@dataclass(frozen=True)
class BothScores:
    """One value [B] a sample: the reward `total` and what it was made of; `accuracy` is 0 or 1."""

    total: Tensor
    classifier: Tensor
    template: Tensor
    accuracy: Tensor


class BothScorer:
    """0.5 * p(colour) * p(shape) + 0.5 * nearness to a drawing."""

    def __init__(self) -> None:
        self._classifier = load_classifier(REWARD_CLASSIFIER)
        self._bank = TemplateBank()

    def score(self, pixels: NDArray[np.float32], prompts: Sequence[str]) -> BothScores:
        """Raises ValueError when a prompt names no shape or the pixels have another form."""
        captions, images = read_request(pixels, prompts)
        probabilities = classify(self._classifier, images, captions)
        classifier = probabilities.colour * probabilities.shape
        template = self._bank.score(images, captions)
        total = CLASSIFIER_SHARE * classifier + (1 - CLASSIFIER_SHARE) * template
        return BothScores(total, classifier, template, count_right(probabilities))


class IndependentScorer:
    """p(colour) * p(shape) by a classifier that no reward uses: for evaluation only."""

    def __init__(self) -> None:
        self._classifier = load_classifier(INDEPENDENT_CLASSIFIER)

    def score(self, pixels: NDArray[np.float32], prompts: Sequence[str]) -> Tensor:
        """The product [B]. Raises ValueError as BothScorer does."""
        captions, images = read_request(pixels, prompts)
        probabilities = classify(self._classifier, images, captions)
        return probabilities.colour * probabilities.shape


def count_right(probabilities: Probabilities) -> Tensor:
    """1.0 where colour and shape are both more likely than not, else 0.0."""
    return ((probabilities.colour > 0.5) & (probabilities.shape > 0.5)).float()


def read_request(pixels: NDArray[np.float32], prompts: Sequence[str]) -> tuple[list[Caption], Tensor]:
    """The captions, and the pixels as a fp32 tensor on the CPU; ValueError for anything else."""
    if tuple(pixels.shape) != (len(prompts), 3, SIZE, SIZE):
        raise ValueError(
            f"the shapes rewards score pixels [B, 3, {SIZE}, {SIZE}], one a prompt; "
            f"got {list(pixels.shape)} for {len(prompts)} prompts"
        )
    return [parse_caption(prompt) for prompt in prompts], torch.tensor(pixels, dtype=torch.float32)
