"""How near a sample is to the nearest of many drawings of what its prompt asked for.

Owns the template bank: 400 seeded drawings a caption, drawn when the caption is first met and kept. A
classifier credits textures that no drawing has; the distance to a drawing does not. Invariant: a score
depends on the sample and its caption only, not on the samples beside it (distances are computed directly, not
by a matrix product whose rounding depends on the number of rows). Not thread-safe: scoring runs on one
executor thread.

Shapes: B samples, T templates, P = 768 = 3 * 16 * 16 values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from digend.rewards.shapes_classifier import to_signed
from digend.rewards.shapes_data import Caption, draw_templates

NUM_TEMPLATES = 400
SEED = 7
TEMPERATURE = 0.08
"""Mean squared error, in [-1, 1] units, at which the score has fallen to 1/e."""


class TemplateBank:
    """Templates [T, P] by caption label, on the CPU."""

    def __init__(self, num_templates: int = NUM_TEMPLATES, seed: int = SEED) -> None:
        self._num_templates = num_templates
        self._seed = seed
        self._templates: dict[int, Tensor] = {}

    def get(self, label: int) -> Tensor:
        """The templates [T, P] of one caption, in [-1, 1]."""
        if label not in self._templates:
            pixels = torch.from_numpy(draw_templates(label, self._num_templates, self._seed))
            self._templates[label] = to_signed(pixels.permute(0, 3, 1, 2).float() / 255).flatten(1)
        return self._templates[label]

    def score(self, pixels: Tensor, captions: list[Caption]) -> Tensor:
        """exp(-nearest mean squared error / 0.08), [B] in (0, 1], for pixels [B, 3, 16, 16] in [0, 1]."""
        flat = to_signed(pixels).flatten(1)
        labels = [caption.label for caption in captions]
        errors = torch.empty(len(flat))
        for label in set(labels):
            rows = [i for i, each in enumerate(labels) if each == label]
            errors[rows] = nearest_error(flat[rows], self.get(label))
        return torch.exp(-errors / TEMPERATURE)


def nearest_error(samples: Tensor, templates: Tensor) -> Tensor:
    """Mean squared error [B] of samples [B, P] to the nearest of templates [T, P]."""
    distances = torch.cdist(samples, templates, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.min(dim=1).values.square() / samples.shape[1]
