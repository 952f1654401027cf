"""The published sizes of the families, for `digenctl plan --size` where the model's folder is not on this box.

Owns the public configurations and the numbers of parameters that follow. A test builds each on torch's meta device and
compares; `lora_width` is the sum of inputs and outputs of the family's LoRA targets, so that an adapter of rank r has r
times as many parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from digend.models.components import Counted

_T5_XXL, _UMT5_XXL, _LLAMA_8B, _QWEN_VL_7B = 4_762_310_656, 5_680_910_336, 7_505_186_816, 8_292_166_656
_CLIP_L, _CLIP_L_PROJECTED, _CLIP_G = 123_060_480, 123_650_304, 694_659_840
_VAE_IMAGE, _VAE_WAN, _VAE_HUNYUAN = 83_819_683, 126_892_531, 246_478_803


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`billions`: what the name says; `transformer`: the arguments of its class; `largest_block`, `outside`: parameters
    of the largest of its repeated blocks, and in none of them."""

    family: str
    billions: float
    transformer: Mapping[str, Any]
    parameters: int
    lora_width: int
    largest_block: int
    outside: int
    others: Mapping[str, int]
    transformers: tuple[str, ...] = ("transformer",)

    @property
    def components(self) -> tuple[Counted, ...]:
        learn = (
            Counted(
                name=name,
                num_parameters=self.parameters,
                lora_width=self.lora_width,
                largest_block=self.largest_block,
                outside=self.outside,
            )
            for name in self.transformers
        )
        return (*learn, *(Counted(name=name, num_parameters=count) for name, count in self.others.items()))


_SD3: Mapping[str, Any] = {
    "sample_size": 128,
    "patch_size": 2,
    "in_channels": 16,
    "attention_head_dim": 64,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 2048,
    "out_channels": 16,
    "qk_norm": "rms_norm",
}
_SD3_OTHERS = {
    "text_encoder": _CLIP_L_PROJECTED,
    "text_encoder_2": _CLIP_G,
    "text_encoder_3": _T5_XXL,
    "vae": _VAE_IMAGE,
}
_WAN: Mapping[str, Any] = {
    "patch_size": (1, 2, 2),
    "attention_head_dim": 128,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": 4096,
    "freq_dim": 256,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 1024,
}
_WAN_14B: Mapping[str, Any] = {**_WAN, "num_attention_heads": 40, "num_layers": 40, "ffn_dim": 13824}
_WAN_OTHERS = {"text_encoder": _UMT5_XXL, "vae": _VAE_WAN}
_FLUX: Mapping[str, Any] = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
    "axes_dims_rope": (16, 56, 56),
}
_QWEN_IMAGE: Mapping[str, Any] = {
    "patch_size": 2,
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 60,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 3584,
    "axes_dims_rope": (16, 56, 56),
}
_HUNYUAN_VIDEO: Mapping[str, Any] = {
    "in_channels": 16,
    "out_channels": 16,
    "num_attention_heads": 24,
    "attention_head_dim": 128,
    "num_layers": 20,
    "num_single_layers": 40,
    "num_refiner_layers": 2,
    "patch_size": 2,
    "patch_size_t": 1,
    "qk_norm": "rms_norm",
    "guidance_embeds": True,
    "text_embed_dim": 4096,
    "pooled_projection_dim": 768,
    "rope_theta": 256.0,
    "rope_axes_dim": (16, 56, 56),
}

SIZES: Mapping[str, Size] = {
    "sd3.5-medium": Size(
        family="sd3",
        billions=2.2,
        transformer={
            **_SD3,
            "num_layers": 24,
            "num_attention_heads": 24,
            "caption_projection_dim": 1536,
            "pos_embed_max_size": 384,
            "dual_attention_layers": tuple(range(13)),
        },
        parameters=2_243_171_520,
        lora_width=586_752,
        largest_block=101_506_944,
        outside=19_476_544,
        others=_SD3_OTHERS,
    ),
    "sd3.5-large": Size(
        family="sd3",
        billions=8,
        transformer={
            **_SD3,
            "num_layers": 38,
            "num_attention_heads": 38,
            "caption_projection_dim": 2432,
            "pos_embed_max_size": 192,
        },
        parameters=8_056_627_520,
        lora_width=1_473_792,
        largest_block=212_999_680,
        outside=39_554_112,
        others=_SD3_OTHERS,
    ),
    "flux-dev": Size(
        family="flux",
        billions=12,
        transformer=_FLUX,
        parameters=11_901_408_320,
        lora_width=1_634_304,
        largest_block=339_831_296,
        outside=64_124_992,
        others={"text_encoder": _CLIP_L, "text_encoder_2": _T5_XXL, "vae": _VAE_IMAGE},
    ),
    "qwen-image": Size(
        family="qwen_image",
        billions=20,
        transformer=_QWEN_IMAGE,
        parameters=20_430_401_088,
        lora_width=2_949_120,
        largest_block=339_831_296,
        outside=40_523_328,
        others={"text_encoder": _QWEN_VL_7B, "vae": _VAE_WAN},
    ),
    "wan2.1-1.3b": Size(
        family="wan",
        billions=1.3,
        transformer={**_WAN, "num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960},
        parameters=1_418_996_800,
        lora_width=737_280,
        largest_block=46_440_704,
        outside=25_775_680,
        others=_WAN_OTHERS,
    ),
    "wan2.1-14b": Size(
        family="wan",
        billions=14,
        transformer=_WAN_14B,
        parameters=14_288_491_584,
        lora_width=3_276_800,
        largest_block=351_394_304,
        outside=232_719_424,
        others=_WAN_OTHERS,
    ),
    "wan2.2-a14b": Size(
        family="wan22",
        billions=14,
        transformer=_WAN_14B,
        parameters=14_288_491_584,
        lora_width=3_276_800,
        largest_block=351_394_304,
        outside=232_719_424,
        others=_WAN_OTHERS,
        transformers=("transformer", "transformer_2"),
    ),
    "hunyuan-video": Size(
        family="hunyuan_video",
        billions=13,
        transformer=_HUNYUAN_VIDEO,
        parameters=12_821_012_544,
        lora_width=1_769_472,
        largest_block=339_831_296,
        outside=360_714_304,
        others={"text_encoder": _LLAMA_8B, "text_encoder_2": _CLIP_L, "vae": _VAE_HUNYUAN},
    ),
}
