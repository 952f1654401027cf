"""Pretrains the demo's flow-matching transformer on the drawn shapes.

Owns the architecture and the pretraining constants. The result is meant to be middling (about three samples
in four show what was asked), so that reinforcement learning has something to gain. Every random number comes
from a generator that is seeded after the model was made; one thread, so one machine type gives one result.

Shapes: B drawings, N = 64 tokens of 2x2 pixels, C = 12 channels.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from torch import Tensor

from digend.rewards.shapes_data import CAPTIONS, SIZE, draw_dataset
from scripts.assets.text import MAX_WORDS, WIDTH

NUM_UPDATES = 2500
BATCH = 32
LEARNING_RATE = 2e-3
EMA_DECAY = 0.998
NUM_DRAWINGS = 20_000
PROGRESS_EVERY = 100
UNIFORM_SIGMAS = 0.3
"""Fraction of sigmas drawn uniformly; the rest are logistic-normal."""


def build_transformer(seed: int) -> Any:
    """The 1.0M-parameter FluxTransformer2DModel with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FluxTransformer2DModel(
            patch_size=1,
            in_channels=12,
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=24,
            num_attention_heads=4,
            joint_attention_dim=WIDTH,
            pooled_projection_dim=WIDTH,
            axes_dims_rope=(8, 8, 8),
            guidance_embeds=False,
        )


def encode_captions(pipeline: Any) -> tuple[Tensor, Tensor]:
    """Token embeddings [36, 8, 32] and pooled embeddings [36, 32], made by the stock pipeline itself."""
    with torch.no_grad():
        tokens, pooled, _ = pipeline.encode_prompt(prompt=list(CAPTIONS), prompt_2=None, max_sequence_length=MAX_WORDS)
    return tokens, pooled


def load_drawings(seed: int) -> tuple[Tensor, Tensor]:
    """The pretraining set as packed tokens [M, 64, 12] in [-1, 1], and its labels [M]."""
    pixels, labels = draw_dataset(NUM_DRAWINGS, seed)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
    packed = FluxPipeline._pack_latents(images, len(images), 3, SIZE, SIZE)
    return packed, torch.from_numpy(labels)


def draw_sigmas(num: int, rng: torch.Generator) -> Tensor:
    """Noise levels [num] in (0, 1)."""
    logistic = torch.sigmoid(torch.randn(num, generator=rng))
    uniform = torch.rand(num, generator=rng)
    return torch.where(torch.rand(num, generator=rng) < UNIFORM_SIGMAS, uniform, logistic)


class Ema:
    """Exponential moving average of a module's parameters, warmed up so that early values are forgotten."""

    def __init__(self, module: Any) -> None:
        self.num_updates = 0
        self.values = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self, module: Any) -> None:
        decay = min(EMA_DECAY, (1 + self.num_updates) / (10 + self.num_updates))
        for value, parameter in zip(self.values, module.parameters(), strict=True):
            value.lerp_(parameter, 1 - decay)
        self.num_updates += 1

    @torch.no_grad()
    def copy_to(self, module: Any) -> None:
        for value, parameter in zip(self.values, module.parameters(), strict=True):
            parameter.copy_(value)


class FlowMatching:
    """The pretraining loss on random drawings; owns its data, its conditions and its random stream."""

    def __init__(self, pipeline: Any, data_seed: int, seed: int) -> None:
        side = SIZE // 2
        self._tokens, self._pooled = encode_captions(pipeline)
        self._drawings, self._labels = load_drawings(data_seed)
        self._img_ids = FluxPipeline._prepare_latent_image_ids(1, side, side, torch.device("cpu"), torch.float32)
        self._txt_ids = torch.zeros(MAX_WORDS, 3)
        self._rng = torch.Generator().manual_seed(seed)

    def loss(self, model: Any) -> Tensor:
        """Mean squared error of the velocity, noise minus drawing, on a fresh batch."""
        pick = torch.randint(len(self._drawings), (BATCH,), generator=self._rng)
        clean, label = self._drawings[pick], self._labels[pick]
        noise = torch.randn(clean.shape, generator=self._rng)
        sigma = draw_sigmas(BATCH, self._rng)
        velocity = model(
            hidden_states=torch.lerp(clean, noise, sigma[:, None, None]),
            timestep=sigma,
            encoder_hidden_states=self._tokens[label],
            pooled_projections=self._pooled[label],
            img_ids=self._img_ids,
            txt_ids=self._txt_ids,
            return_dict=False,
        )[0]
        return torch.nn.functional.mse_loss(velocity, noise - clean)


def pretrain(pipeline: Any, data_seed: int, seed: int, num_updates: int = NUM_UPDATES) -> None:
    """Train `pipeline.transformer` in place by flow matching and leave its averaged weights in it."""
    model = pipeline.transformer.train()
    task, ema = FlowMatching(pipeline, data_seed, seed), Ema(model)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=num_updates, pct_start=0.05)
    start, total = time.monotonic(), 0.0
    for update in range(1, num_updates + 1):
        loss = task.loss(model)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        ema.update(model)
        total += loss.item()
        if update % PROGRESS_EVERY == 0:
            mean, seconds = total / PROGRESS_EVERY, time.monotonic() - start
            print(f"pretrain {update}/{num_updates} loss {mean:.4f} {seconds:.0f} s", flush=True)
            total = 0.0
    ema.copy_to(model)
    model.eval()
