"""Makes the digits that tests learn on: `python -m scripts.assets.digits DIGITS.CSV.GZ [FOLDER]`.

Owns a tiny transformer that draws handwritten digits, 8x8, about three in four right, and the classifier that reads
them. Everything else of the pipeline is the shapes model's: its text side reads the digits' names letter by letter, its
autoencoder changes nothing. The data is the test set of UCI's "Optical Recognition of Handwritten Digits" (CC BY 4.0),
as scikit-learn ships it in sklearn/datasets/data/digits.csv.gz. About a minute on one CPU thread.

Shapes: B drawings, N = 16 tokens of 2x2 pixels, C = 12 channels (grey, three times).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline, FluxPipeline, FluxTransformer2DModel
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scripts.assets.make import MODEL_DIR
from scripts.assets.pretrain import draw_sigmas
from scripts.assets.text import MAX_WORDS, WIDTH
from tests.engines.digits.digit_reward import NAMES, SIZE, Classifier

FOLDER = Path("tests/engines/digits")
NUM_UPDATES, BATCH, LEARNING_RATE = 250, 64, 3e-3
CLASSIFIER_UPDATES, CLASSIFIER_BATCH, NOISE = 800, 128, 0.2


def load_digits(path: Path) -> tuple[Tensor, Tensor]:
    """Pictures [M, 1, 8, 8] in [-1, 1], and which digit each is [M]."""
    rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    return rows[:, :-1].reshape(-1, 1, SIZE, SIZE) / 8 - 1, rows[:, -1].long()


def train_classifier(pictures: Tensor, labels: Tensor) -> Classifier:
    """On all pictures under noise: what it is for is to tell good samples from bad ones."""
    torch.manual_seed(11)
    classifier, rng = Classifier(), torch.Generator().manual_seed(12)
    optimizer = torch.optim.AdamW(classifier.parameters(), 2e-3)
    for _ in range(CLASSIFIER_UPDATES):
        pick = torch.randint(len(pictures), (CLASSIFIER_BATCH,), generator=rng)
        noisy = pictures[pick] + NOISE * torch.randn(pictures[pick].shape, generator=rng)
        optimizer.zero_grad()
        cross_entropy(classifier(noisy), labels[pick]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return classifier.eval()


def pretrain(pipeline: Any, pictures: Tensor, labels: Tensor) -> Any:
    """A transformer of 2 heads of 24, one double and two single blocks, by flow matching."""
    torch.manual_seed(0)
    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=12,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=24,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        axes_dims_rope=(8, 8, 8),
        guidance_embeds=False,
    )
    with torch.no_grad():
        tokens, pooled, _ = pipeline.encode_prompt(list(NAMES), None, max_sequence_length=MAX_WORDS)
    packed = FluxPipeline._pack_latents(pictures.expand(-1, 3, -1, -1), len(pictures), 3, SIZE, SIZE)
    img_ids = FluxPipeline._prepare_latent_image_ids(1, SIZE // 2, SIZE // 2, torch.device("cpu"), torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=NUM_UPDATES, pct_start=0.05)
    rng = torch.Generator().manual_seed(2)
    for update in range(NUM_UPDATES):
        pick = torch.randint(len(packed), (BATCH,), generator=rng)
        clean, label, sigma = packed[pick], labels[pick], draw_sigmas(BATCH, rng)
        noise = torch.randn(clean.shape, generator=rng)
        velocity = model(
            hidden_states=torch.lerp(clean, noise, sigma[:, None, None]),
            timestep=sigma,
            encoder_hidden_states=tokens[label],
            pooled_projections=pooled[label],
            img_ids=img_ids,
            txt_ids=torch.zeros(MAX_WORDS, 3),
            return_dict=False,
        )[0]
        loss = mse_loss(velocity, noise - clean)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 50 == 0:
            print(f"pretrain {update} loss {loss.item():.3f}", flush=True)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", type=Path, help="digits.csv.gz of scikit-learn")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    pictures, labels = load_digits(options.digits)
    classifier = train_classifier(pictures, labels)
    right = (classifier(pictures).argmax(1) == labels).float().mean()
    print(f"classifier: {right:.4f} of its own data right")
    save_file(classifier.state_dict(), options.folder / "classifier.safetensors")
    transformer = pretrain(DiffusionPipeline.from_pretrained(MODEL_DIR), pictures, labels)
    print(f"transformer: {sum(each.numel() for each in transformer.parameters()):,} parameters")
    transformer.save_pretrained(options.folder / "transformer")
    for file in options.folder.rglob("*.safetensors"):
        file.chmod(0o644)


if __name__ == "__main__":
    main()
