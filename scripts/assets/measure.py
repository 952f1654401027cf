"""Measures the demo's base model: `python -m scripts.assets.measure [FOLDER] [--grid PNG] [--samples 16]`.

Owns the check that the pretrained model is where the demo expects it: about three samples in four right, by
the reward's classifier and by the independent one. Samples with the stock pipeline, 8 timesteps, 36 captions,
a fixed seed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from digend.rewards.shapes_data import CAPTIONS, COLOUR_NAMES, SHAPES, SIZE
from digend.rewards.shapes_scoring import BothScorer, IndependentScorer
from scripts.assets.make import MODEL_DIR
from scripts.assets.text import MAX_WORDS

NUM_TIMESTEPS = 8
SEED = 4242
SCALE = 5


def sample(pipeline: Any, prompts: list[str], seed: int) -> torch.Tensor:
    """Pixels [B, 3, 16, 16] in [0, 1], one a prompt."""
    images = pipeline(
        prompt=prompts,
        height=SIZE,
        width=SIZE,
        num_inference_steps=NUM_TIMESTEPS,
        max_sequence_length=MAX_WORDS,
        generator=torch.Generator().manual_seed(seed),
        output_type="pt",
    ).images
    return torch.as_tensor(images)


def report(images: torch.Tensor, prompts: list[str]) -> None:
    """Print means over all samples, and accuracy by colour and by shape."""
    pixels = images.numpy()
    both = BothScorer().score(pixels, prompts)
    independent = IndependentScorer().score(pixels, prompts)
    print(f"samples {len(prompts)}")
    print(f"reward {both.total.mean():.3f}, its template part {both.template.mean():.3f}")
    print(f"reward classifier: p {both.classifier.mean():.3f}, accuracy {both.accuracy.mean():.3f}")
    print(f"independent classifier: p {independent.mean():.3f}")
    for names, position in ((COLOUR_NAMES, 1), (SHAPES, 2)):
        for name in names:
            rows = torch.tensor([prompt.split()[position] == name for prompt in prompts])
            accuracy, p = both.accuracy[rows].mean(), independent[rows].mean()
            print(f"  {name}: accuracy {accuracy:.2f}, independent p {p:.2f}")


def save_grid(pixels: torch.Tensor, num_columns: int, path: Path) -> None:
    """Samples side by side, row by row, enlarged."""
    tiles = (pixels * 255).round().byte().permute(0, 2, 3, 1).numpy()
    cell = SIZE + 2
    num_rows = -(-len(tiles) // num_columns)
    sheet = np.full((num_rows * cell, num_columns * cell, 3), 90, np.uint8)
    for i, tile in enumerate(tiles):
        top, left = (i // num_columns) * cell, (i % num_columns) * cell
        sheet[top : top + SIZE, left : left + SIZE] = tile
    size = (sheet.shape[1] * SCALE, sheet.shape[0] * SCALE)
    Image.fromarray(sheet).resize(size, Image.Resampling.NEAREST).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=MODEL_DIR)
    parser.add_argument("--grid", type=Path, help="write a picture of the samples here")
    parser.add_argument("--samples", type=int, default=16, help="samples a prompt")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    from diffusers import DiffusionPipeline

    torch.set_num_threads(1)
    pipeline = DiffusionPipeline.from_pretrained(options.folder)
    pipeline.set_progress_bar_config(disable=True)
    for name, module in pipeline.components.items():
        if isinstance(module, torch.nn.Module):
            print(f"{name}: {sum(p.numel() for p in module.parameters()):,} parameters")
    prompts = [caption for caption in CAPTIONS for _ in range(options.samples)]
    pixels = sample(pipeline, prompts, SEED)
    report(pixels, prompts)
    if options.grid:
        save_grid(pixels, options.samples, options.grid)


if __name__ == "__main__":
    main()
