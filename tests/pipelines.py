"""Tiny pipelines with random weights, of the stock classes, written to a folder and loaded from it as any model is.

The vocabularies are written by hand: trained ones differ from process to process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from tokenizers import pre_tokenizers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
    UMT5Config,
    UMT5EncoderModel,
)

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


def build_sd3(folder: Path, seed: int = 0) -> Path:
    """Two joint blocks, the first with a second attention as in 3.5 medium, 2 heads of 16."""
    torch.manual_seed(seed)
    clips = [_clip_tokenizer() for _ in range(2)]
    t5_tokenizer = _t5_tokenizer()
    transformer = SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=LATENT_CHANNELS,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=HIDDEN,
        caption_projection_dim=HIDDEN,
        pooled_projection_dim=HIDDEN,
        out_channels=LATENT_CHANNELS,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
        dual_attention_layers=(0,),
    )
    encoders = [_clip(each, CLIPTextModelWithProjection, HIDDEN // 2) for each in clips]
    pipeline = StableDiffusion3Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(),
        text_encoder=encoders[0],
        tokenizer=clips[0],
        text_encoder_2=encoders[1],
        tokenizer_2=clips[1],
        text_encoder_3=_t5(t5_tokenizer),
        tokenizer_3=t5_tokenizer,
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_wan(folder: Path, seed: int = 0, scheduler: Any = None) -> Path:
    """Two blocks, 2 heads of 12; a VAE of factor 8 in space and 4 in time."""
    torch.manual_seed(seed)
    tokenizer = _t5_tokenizer()
    pipeline = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=_t5(tokenizer, UMT5EncoderModel, UMT5Config),
        vae=_video_vae(AutoencoderKLWan),
        scheduler=scheduler or FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=_wan_transformer(),
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def _wan_transformer() -> Any:
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        text_dim=HIDDEN,
        freq_dim=64,
        ffn_dim=48,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )


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


def _clip(tokenizer: Any, kind: Any = CLIPTextModel, hidden: int = HIDDEN) -> Any:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=1 if kind is CLIPTextModel else 2,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=hidden,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return kind(config).eval()


def _t5(tokenizer: Any, kind: Any = T5EncoderModel, config_kind: Any = T5Config) -> Any:
    config = config_kind(
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
    return kind(config).eval()


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


def _video_vae(kind: Any) -> Any:
    """Factor 8 in space, 4 in time; means and deviations that a mistake would show."""
    return kind(
        base_dim=4,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.1, -0.2, 0.3, 0.05],
        latents_std=[1.5, 0.7, 1.1, 2.0],
    )
