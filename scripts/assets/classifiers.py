"""Trains the two shapes classifiers and writes them as package data: weights, and a card each.

Owns the two recipes. They share only the architecture's form: drawings, width, augmentation and seeds differ,
so that the independent one can tell a better picture from a picture that fools the reward.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from digend.rewards.shapes_classifier import (
    INDEPENDENT_CLASSIFIER,
    REWARD_CLASSIFIER,
    ShapesClassifier,
    to_signed,
)
from digend.rewards.shapes_data import COLOUR_NAMES, SHAPES, draw_dataset

DATA_DIR = Path("digend/rewards/data")
BATCH = 128
LEARNING_RATE = 2e-3
NUM_TEST_DRAWINGS = 2000
TEST_SEED = 2


@dataclass(frozen=True)
class Recipe:
    """What differs between the two classifiers."""

    name: str
    width: int
    noise: float
    data_seed: int
    seed: int
    num_drawings: int = 12_000
    num_updates: int = 560


REWARD = Recipe(REWARD_CLASSIFIER, width=24, noise=0.15, data_seed=1, seed=11)
INDEPENDENT = Recipe(INDEPENDENT_CLASSIFIER, width=32, noise=0.10, data_seed=77, seed=123)


def train_and_save(recipe: Recipe, root: Path) -> None:
    """Train, test on drawings that neither recipe has seen, write `NAME.safetensors` and `NAME.json`."""
    classifier = train(recipe)
    colour, shape = measure_accuracy(classifier, TEST_SEED)
    print(f"{recipe.name}: test accuracy colour {colour:.4f} shape {shape:.4f}", flush=True)
    folder = root / DATA_DIR
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / f"{recipe.name}.safetensors"
    save_file(classifier.state_dict(), weights)
    weights.chmod(0o644)
    card = {
        "width": recipe.width,
        "colours": COLOUR_NAMES,
        "shapes": SHAPES,
        "num_parameters": sum(p.numel() for p in classifier.parameters()),
        "test_accuracy": {"colour": colour, "shape": shape},
        "test": {"num_drawings": NUM_TEST_DRAWINGS, "seed": TEST_SEED},
        "recipe": asdict(recipe) | {"batch": BATCH, "learning_rate": LEARNING_RATE},
        "made_by": "python -m scripts.assets.make --only classifiers",
        "data": "all drawn by digend.rewards.shapes_data; nothing downloaded",
    }
    (folder / f"{recipe.name}.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def train(recipe: Recipe) -> ShapesClassifier:
    """A classifier trained on drawings under pixel noise of random strength, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        classifier = ShapesClassifier(recipe.width)
    rng = torch.Generator().manual_seed(recipe.seed)
    images, colours, shapes = load_labelled(recipe.num_drawings, recipe.data_seed)
    optimizer = torch.optim.AdamW(classifier.parameters(), LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=recipe.num_updates)
    for update in range(1, recipe.num_updates + 1):
        pick = torch.randint(len(images), (BATCH,), generator=rng)
        strength = recipe.noise * torch.rand(BATCH, 1, 1, 1, generator=rng)
        noisy = images[pick] + strength * torch.randn(images[pick].shape, generator=rng)
        colour_logits, shape_logits = classifier(noisy)
        loss = torch.nn.functional.cross_entropy(colour_logits, colours[pick])
        loss = loss + torch.nn.functional.cross_entropy(shape_logits, shapes[pick])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if update % 100 == 0:
            print(f"{recipe.name} {update}/{recipe.num_updates} loss {loss.item():.4f}", flush=True)
    return classifier.eval()


def load_labelled(num_drawings: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Drawings [N, 3, 16, 16] in [-1, 1], colour indices [N], shape indices [N]."""
    pixels, labels = draw_dataset(num_drawings, seed)
    images = to_signed(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255)
    label = torch.from_numpy(labels)
    return images, label // len(SHAPES), label % len(SHAPES)


@torch.no_grad()
def measure_accuracy(classifier: ShapesClassifier, seed: int) -> tuple[float, float]:
    """Colour and shape accuracy on freshly drawn pictures."""
    images, colours, shapes = load_labelled(NUM_TEST_DRAWINGS, seed)
    colour_logits, shape_logits = classifier(images)
    colour_right = (colour_logits.argmax(1) == colours).float().mean().item()
    return colour_right, (shape_logits.argmax(1) == shapes).float().mean().item()
