"""The demo model as a stock diffusers FluxPipeline folder: safetensors and json, no code of ours.

Owns the assembly. Invariant: what is saved reloads with `DiffusionPipeline.from_pretrained`, offline, without
remote code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline

from scripts.assets.identity_vae import build_identity_vae
from scripts.assets.pretrain import build_transformer
from scripts.assets.text import build_clip_tokenizer, build_encoders, build_t5_tokenizer


def build_pipeline(text_seed: int, transformer_seed: int) -> Any:
    """The whole pipeline with an untrained transformer."""
    clip_tokenizer, t5_tokenizer = build_clip_tokenizer(), build_t5_tokenizer()
    clip, t5 = build_encoders(clip_tokenizer, t5_tokenizer, text_seed)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            shift=1.0,
            use_dynamic_shifting=True,
            base_shift=0.5,
            max_shift=1.15,
            base_image_seq_len=256,
            max_image_seq_len=4096,
        ),
        vae=build_identity_vae(),
        text_encoder=clip,
        tokenizer=clip_tokenizer,
        text_encoder_2=t5,
        tokenizer_2=t5_tokenizer,
        transformer=build_transformer(transformer_seed),
    )


def save_pipeline(pipeline: Any, folder: Path) -> None:
    """Write the folder; its README.md, written by hand, is left alone."""
    pipeline.save_pretrained(folder, safe_serialization=True)
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)
