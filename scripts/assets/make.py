"""Makes every asset of the demo: `python -m scripts.assets.make [ROOT] [--only model classifiers prompts]`.

Owns the seeds and the places in the repository. Seven to 13 minutes on one CPU thread, nearly all of it the
model. Running it again gives the same drawings, vocabularies, frozen encoders and prompts; trained weights
are equal bit for bit on like hardware.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PARTS = ("prompts", "classifiers", "model")
MODEL_DIR = Path("configs/models/shapes-flux")
PROMPTS_FILE = Path("configs/jobs/shapes-prompts.txt")
TEXT_SEED, TRANSFORMER_SEED, DATA_SEED, PRETRAIN_SEED = 1, 0, 0, 2


def make_prompts(root: Path) -> None:
    """One caption a line."""
    from digend.rewards.shapes_data import CAPTIONS

    path = root / PROMPTS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{caption}\n" for caption in CAPTIONS), encoding="utf-8")


def make_classifiers(root: Path) -> None:
    """The reward's classifier and the independent one that only evaluation uses."""
    from scripts.assets.classifiers import INDEPENDENT, REWARD, train_and_save

    for recipe in (REWARD, INDEPENDENT):
        train_and_save(recipe, root)


def make_model(root: Path) -> None:
    """The pretrained pipeline folder."""
    from scripts.assets.pipeline import build_pipeline, save_pipeline
    from scripts.assets.pretrain import pretrain

    pipeline = build_pipeline(TEXT_SEED, TRANSFORMER_SEED)
    pretrain(pipeline, DATA_SEED, PRETRAIN_SEED)
    save_pipeline(pipeline, root / MODEL_DIR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="repository root to write into")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(1)
    makers = {"prompts": make_prompts, "classifiers": make_classifiers, "model": make_model}
    for part in PARTS:
        if part in options.only:
            print(f"making {part}", flush=True)
            makers[part](options.root)


if __name__ == "__main__":
    main()
