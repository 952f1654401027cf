"""Tiny pipelines with random weights, of the stock classes, written to a folder and loaded from it as any model is.

The vocabularies are written by hand: trained ones differ from process to process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from tokenizers import pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel, T5TokenizerFast

WORDS = ("a", "red", "green", "blue", "circle", "square", "triangle", "of", "photo")
PROMPTS = ("a red circle", "a blue square", "a photo of a green triangle")
SIZE = 32
"""Pixels a side: 4 packed tokens."""
MAX_TOKENS = 16
LATENT_CHANNELS = 4
HIDDEN = 32


def build_flux(folder: Path, seed: int = 0) -> Path:
    """One double and one single block, 2 heads of 16, guidance embedding; about 170,000 parameters in all."""
    torch.manual_seed(seed)
    clip_tokenizer, t5_tokenizer = _clip_tokenizer(), _t5_tokenizer()
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4 * LATENT_CHANNELS,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=HIDDEN,
        pooled_projection_dim=HIDDEN,
        axes_dims_rope=(4, 6, 6),
        guidance_embeds=True,
    )
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            shift=3.0,
            use_dynamic_shifting=True,
            base_shift=0.5,
            max_shift=1.15,
            base_image_seq_len=256,
            max_image_seq_len=4096,
        ),
        vae=_vae(),
        text_encoder=_clip(clip_tokenizer),
        tokenizer=clip_tokenizer,
        text_encoder_2=_t5(t5_tokenizer),
        tokenizer_2=t5_tokenizer,
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def _clip_tokenizer() -> Any:
    """Byte-level pieces only: every character is a token, the last of a word marked."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(byte + "</w>" for byte in alphabet), "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocab, merges=[], model_max_length=77)


def _t5_tokenizer() -> Any:
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    characters = [(chr(code), -8.0) for code in range(33, 127)]
    words = [("▁" + word, -1.0) for word in WORDS]
    return T5TokenizerFast(vocab=specials + words + characters, extra_ids=0, model_max_length=MAX_TOKENS)


def _clip(tokenizer: Any) -> Any:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=HIDDEN,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModel(config).eval()


def _t5(tokenizer: Any) -> Any:
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=HIDDEN,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    return T5EncoderModel(config).eval()


def _vae() -> Any:
    """Factor 8, 4 latent channels."""
    width = (8, 8, 8, 8)
    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * len(width),
        up_block_types=("UpDecoderBlock2D",) * len(width),
        block_out_channels=width,
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.0609,
        scaling_factor=1.5035,
        mid_block_add_attention=False,
    )
