"""The drawn shapes world: six colours by six shapes on black, 16x16 pixels, one caption each.

Owns the drawing and the captions, for the scripts that make the demo's assets and for the rewards that score
the demo's samples; both must mean the same thing by "a red circle". It knows numpy and PIL only, no torch and
no model. Invariant: a drawing is a function of its colour, its shape and the generator it is handed, and
draws the same numbers from that generator whatever the shape, so one seed gives one data set.

Labels count captions: `label = colour index * 6 + shape index`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIZE = 16
OVERSAMPLING = 4
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (235, 40, 40),
    "green": (40, 200, 60),
    "blue": (50, 80, 245),
    "yellow": (240, 220, 40),
    "purple": (170, 50, 220),
    "white": (240, 240, 240),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")
COLOUR_NAMES = tuple(COLOURS)
CAPTIONS = tuple(f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES)

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Caption:
    """A caption's meaning, as indices into COLOUR_NAMES and SHAPES."""

    colour: int
    shape: int

    @property
    def label(self) -> int:
        """Position of the caption in CAPTIONS."""
        return self.colour * len(SHAPES) + self.shape


def parse_caption(prompt: str) -> Caption:
    """Read "a red circle"; surrounding blanks and capitals do not matter.

    Raises ValueError, naming the prompt, for anything else.
    """
    match prompt.lower().split():
        case ["a", colour, shape] if colour in COLOURS and shape in SHAPES:
            return Caption(COLOUR_NAMES.index(colour), SHAPES.index(shape))
    raise ValueError(
        f"prompt {prompt!r} names no drawn shape: expected 'a COLOUR SHAPE' with COLOUR one of "
        f"{', '.join(COLOUR_NAMES)} and SHAPE one of {', '.join(SHAPES)}"
    )


def draw(colour: str, shape: str, rng: np.random.Generator) -> Pixels:
    """One antialiased drawing [16, 16, 3], 0..255: place, radius and tint are random."""
    side = SIZE * OVERSAMPLING
    radius = rng.uniform(0.24, 0.40) * side
    x, y = rng.uniform(radius, side - radius), rng.uniform(radius, side - radius)
    red, green, blue = (int(np.clip(v + rng.normal() * 8, 0, 255)) for v in COLOURS[colour])
    image = Image.new("RGB", (side, side), (0, 0, 0))
    _paint(ImageDraw.Draw(image), shape, x, y, radius, (red, green, blue))
    return np.array(image.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.uint8)


def _paint(pen: ImageDraw.ImageDraw, shape: str, x: float, y: float, radius: float, fill: tuple[int, int, int]) -> None:
    match shape:
        case "circle":
            pen.ellipse(_box(x, y, radius, radius), fill=fill)
        case "square":
            pen.rectangle(_box(x, y, radius * 0.88, radius * 0.88), fill=fill)
        case "triangle":
            base = y + radius * 0.8
            pen.polygon([(x, y - radius), (x - radius, base), (x + radius, base)], fill=fill)
        case "cross":
            pen.rectangle(_box(x, y, radius * 0.36, radius), fill=fill)
            pen.rectangle(_box(x, y, radius, radius * 0.36), fill=fill)
        case "ring":
            pen.ellipse(_box(x, y, radius, radius), fill=fill)
            pen.ellipse(_box(x, y, radius * 0.52, radius * 0.52), fill=(0, 0, 0))
        case "diamond":
            half = radius * 0.75
            pen.polygon([(x, y - radius), (x + half, y), (x, y + radius), (x - half, y)], fill=fill)
        case _:
            raise ValueError(f"unknown shape {shape!r}")


def _box(x: float, y: float, half_width: float, half_height: float) -> Box:
    return (x - half_width, y - half_height, x + half_width, y + half_height)


def draw_dataset(num_drawings: int, seed: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Drawings [N, 16, 16, 3] of uniformly drawn captions, and their labels [N]."""
    rng = np.random.default_rng(seed)
    pixels = np.empty((num_drawings, SIZE, SIZE, 3), np.uint8)
    labels = np.empty(num_drawings, np.int64)
    for i in range(num_drawings):
        labels[i] = rng.integers(len(CAPTIONS))
        pixels[i] = draw_label(int(labels[i]), rng)
    return pixels, labels


def draw_templates(label: int, num_templates: int, seed: int) -> Pixels:
    """Drawings [N, 16, 16, 3] of one caption; each label has a stream of its own under one seed."""
    rng = np.random.default_rng((seed, label))
    return np.stack([draw_label(label, rng) for _ in range(num_templates)])


def draw_label(label: int, rng: np.random.Generator) -> Pixels:
    """One drawing of the caption with this label."""
    colour, shape = divmod(label, len(SHAPES))
    return draw(COLOUR_NAMES[colour], SHAPES[shape], rng)
