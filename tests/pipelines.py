"""Tiny pipelines with random weights, of the stock classes, written to a folder and loaded from it as any model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLHunyuanVideo,
    AutoencoderKLQwenImage,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    HunyuanVideoPipeline,
    HunyuanVideoTransformer3DModel,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    LlamaConfig,
    LlamaModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

from tests.tokenizers import clip_tokenizer, llama_tokenizer, qwen_tokenizer, t5_tokenizer

PROMPTS = ("a red circle", "a blue square", "a photo of a green triangle")
SIZE = 32
"""Pixels a side: 4 packed tokens."""
MAX_TOKENS = 16
LATENT_CHANNELS = 4
HIDDEN = 32


def build_flux(folder: Path, seed: int = 0) -> Path:
    """One double and one single block, 2 heads of 16, guidance embedding; about 170,000 parameters in all."""
    torch.manual_seed(seed)
    tokenizer, tokenizer_2 = clip_tokenizer(), t5_tokenizer(MAX_TOKENS)
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
        text_encoder=_clip(tokenizer),
        tokenizer=tokenizer,
        text_encoder_2=_t5(tokenizer_2),
        tokenizer_2=tokenizer_2,
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_sd3(folder: Path, seed: int = 0) -> Path:
    """Two joint blocks, the first with a second attention as in 3.5 medium, 2 heads of 16."""
    torch.manual_seed(seed)
    clips = [clip_tokenizer() for _ in range(2)]
    tokenizer_3 = t5_tokenizer(MAX_TOKENS)
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
        text_encoder_3=_t5(tokenizer_3),
        tokenizer_3=tokenizer_3,
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_wan(folder: Path, seed: int = 0, scheduler: Any = None) -> Path:
    """Two blocks, 2 heads of 12; a VAE of factor 8 in space and 4 in time."""
    torch.manual_seed(seed)
    tokenizer = t5_tokenizer(MAX_TOKENS)
    pipeline = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=_t5(tokenizer, UMT5EncoderModel, UMT5Config),
        vae=_video_vae(AutoencoderKLWan),
        scheduler=scheduler or FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=_wan_transformer(),
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_wan22(folder: Path, seed: int = 0) -> Path:
    """Wan with a second transformer below a timestep of 875."""
    torch.manual_seed(seed)
    tokenizer = t5_tokenizer(MAX_TOKENS)
    pipeline = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=_t5(tokenizer, UMT5EncoderModel, UMT5Config),
        vae=_video_vae(AutoencoderKLWan),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=_wan_transformer(),
        transformer_2=_wan_transformer(),
        boundary_ratio=0.875,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_qwen_image(folder: Path, seed: int = 0) -> Path:
    """Two blocks, 2 heads of 16, behind a Qwen2.5-VL of two layers whose tokenizer knows the pipeline's template."""
    torch.manual_seed(seed)
    template = "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, "
    template += "spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    tokenizer = qwen_tokenizer(template + "<|im_start|>assistant\n")
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=4 * LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=HIDDEN,
        axes_dims_rope=(4, 6, 6),
    )
    pipeline = QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True,
            base_shift=0.5,
            max_shift=0.9,
            base_image_seq_len=256,
            max_image_seq_len=8192,
            shift_terminal=0.02,
            time_shift_type="exponential",
        ),
        vae=_video_vae(AutoencoderKLQwenImage),
        text_encoder=_qwen_vl(tokenizer),
        tokenizer=tokenizer,
        transformer=transformer,
    )
    assert pipeline.prompt_template_encode == template + "<|im_start|>assistant\n"
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def build_hunyuan_video(folder: Path, seed: int = 0) -> Path:
    """One double, one single and one refiner block, 2 heads of 10; a Llama of four layers, because the third from the
    end is what the pipeline reads."""
    from diffusers.pipelines.hunyuan_video.pipeline_hunyuan_video import DEFAULT_PROMPT_TEMPLATE

    torch.manual_seed(seed)
    tokenizer, tokenizer_2 = llama_tokenizer(DEFAULT_PROMPT_TEMPLATE["template"]), clip_tokenizer()
    transformer = HunyuanVideoTransformer3DModel(
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_attention_heads=2,
        attention_head_dim=10,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        patch_size=2,
        patch_size_t=1,
        guidance_embeds=True,
        text_embed_dim=HIDDEN,
        pooled_projection_dim=HIDDEN,
        rope_axes_dim=(2, 4, 4),
    )
    vae = AutoencoderKLHunyuanVideo(
        latent_channels=LATENT_CHANNELS,
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        norm_num_groups=4,
        spatial_compression_ratio=8,
        temporal_compression_ratio=4,
        mid_block_add_attention=True,
    )
    pipeline = HunyuanVideoPipeline(
        text_encoder=_llama(tokenizer),
        tokenizer=tokenizer,
        transformer=transformer,
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=_clip(tokenizer_2),
        tokenizer_2=tokenizer_2,
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


def _llama(tokenizer: Any) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaModel(config).eval()


def _qwen_vl(tokenizer: Any) -> Any:
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e6},
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "patch_size": 14,
        "fullatt_block_indexes": [0],
    }
    marks = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{mark}|>")
        for name, mark in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **marks)).eval()


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
