"""The demo's rewards: `shapes_both`, and `shapes_independent`, which only evaluation may use.

Owns the two plug-in specs and the step from a batch to scores. Torch-free at import: the scorers, which load
a classifier, are imported by the build functions. A prompt that names no drawn shape raises ValueError with
the prompt in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from digend.rewards.spec import Batch, NoOptions, Reward, RewardSpec, Scores

if TYPE_CHECKING:
    from digend.rewards.shapes_scoring import BothScorer, IndependentScorer


class ShapesBoth:
    """0.5 * p(colour) * p(shape) + 0.5 * nearness to a drawing, with its parts; pixels [B, 3, 16, 16]."""

    def __init__(self, scorer: BothScorer) -> None:
        self._scorer = scorer

    def score(self, batch: Batch) -> Scores:
        scores = self._scorer.score(batch.pixels, batch.prompts)
        components = {
            "classifier": scores.classifier.tolist(),
            "template": scores.template.tolist(),
            "accuracy": scores.accuracy.tolist(),
        }
        return Scores(values=scores.total.tolist(), components=components)


class ShapesIndependent:
    """p(colour) * p(shape) by a classifier that no reward uses; pixels [B, 3, 16, 16]."""

    def __init__(self, scorer: IndependentScorer) -> None:
        self._scorer = scorer

    def score(self, batch: Batch) -> Scores:
        return Scores(values=self._scorer.score(batch.pixels, batch.prompts).tolist())


def build_both(options: BaseModel, device: str) -> Reward:
    """The reward; it works on the CPU whatever the device, as its network is tiny."""
    from digend.rewards.shapes_scoring import BothScorer

    return ShapesBoth(BothScorer())


def build_independent(options: BaseModel, device: str) -> Reward:
    """The evaluation metric; on the CPU like the reward."""
    from digend.rewards.shapes_scoring import IndependentScorer

    return ShapesIndependent(IndependentScorer())


both = RewardSpec(name="shapes_both", options=NoOptions, builder="digend.rewards.shapes:build_both")
independent = RewardSpec(
    name="shapes_independent", options=NoOptions, builder="digend.rewards.shapes:build_independent"
)
