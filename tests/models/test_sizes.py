"""The published sizes, built on torch's meta device: what `digenctl plan --size` says is what diffusers would make."""

from typing import Any

import diffusers
import pytest
import torch
import transformers

from digend.models.components import Component
from digend.models.sizes import SIZES
from digend.plugins import model_spec

CLASSES = {
    "sd3": "SD3Transformer2DModel",
    "flux": "FluxTransformer2DModel",
    "qwen_image": "QwenImageTransformer2DModel",
    "wan": "WanTransformer3DModel",
    "wan22": "WanTransformer3DModel",
    "hunyuan_video": "HunyuanVideoTransformer3DModel",
}
TOLERANCE = {"wan2.1-1.3b": 0.10, "wan2.1-14b": 0.025, "wan2.2-a14b": 0.025, "qwen-image": 0.025}
"""Names round: Wan's are 1.42 and 14.29 billion, Qwen-Image's 20.43. All others are within 2 %."""


@pytest.mark.parametrize("name", [name for name in SIZES if name != "wan2.2-a14b"])
def test_the_transformer(name: str) -> None:
    size = SIZES[name]
    with torch.device("meta"):
        module = getattr(diffusers, CLASSES[size.family])(**size.transformer)
    found = Component(name="transformer", shapes={key: tuple(each.shape) for key, each in module.named_parameters()})
    assert found.num_parameters == size.parameters
    family = model_spec(size.family)
    assert found.adapter_parameters(family.lora_targets, 1) == size.lora_width
    assert found.in_pass(family.sharding_units) == size.components[0].in_pass(family.sharding_units)
    assert (
        found.num_parameters - sum(count(module.get_submodule(name)) for name in family.sharding_units) == size.outside
    )


PUBLISHED = {
    "flux-dev": (23_802_816_640, 2),
    "qwen-image": (40_860_802_176, 2),
    "wan2.2-a14b": (57_153_966_336, 4),
    "sd3.5-large": (16_292_561_536, 2),
}
"""Bytes of all tensors of a published transformer, and bytes of one number.

`total_size` of diffusion_pytorch_model.safetensors.index.json, as others on GitHub repeat it: FLUX.1-dev and Qwen-Image
in the model cards of exo, Wan2.2-T2V-A14B-Diffusers in a report on its architecture, Stable Diffusion 3.5 Large in the
index kept by RevL-Lambda-DevRel/Stable-Diffusion-3.5-Large.
"""


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_published_files_are_as_large(name: str) -> None:
    """To the byte. A file holds what is saved beside parameters too: the table of positions of SD 3.5."""
    size, (num_bytes, width) = SIZES[name], PUBLISHED[name]
    with torch.device("meta"):
        module = getattr(diffusers, CLASSES[size.family])(**size.transformer)
    saved = sum(each.numel() for each in module.state_dict().values())
    assert saved * width == num_bytes
    assert saved - size.parameters == (192 * 192 * 2432 if name == "sd3.5-large" else 0)


def test_published_text_encoders_are_as_large() -> None:
    """From the same places, two bytes a number."""
    assert 2 * SIZES["flux-dev"].others["text_encoder_2"] == 9_524_621_312
    assert 2 * SIZES["qwen-image"].others["text_encoder"] == 16_584_333_312
    assert 2 * SIZES["wan2.2-a14b"].others["text_encoder"] == 11_361_820_672


@pytest.mark.parametrize("name", list(SIZES))
def test_it_is_as_large_as_its_name_says(name: str) -> None:
    size = SIZES[name]
    assert size.parameters / 1e9 == pytest.approx(size.billions, rel=TOLERANCE.get(name, 0.02))


def count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_text_encoders() -> None:
    xxl = {
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10240,
        "num_layers": 24,
        "num_heads": 64,
        "feed_forward_proj": "gated-gelu",
    }
    llama = {
        "vocab_size": 128320,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    with torch.device("meta"):
        t5 = transformers.T5EncoderModel(transformers.T5Config(vocab_size=32128, **xxl))
        umt5 = transformers.UMT5EncoderModel(transformers.UMT5Config(vocab_size=256384, **xxl))
        llama_8b = transformers.LlamaModel(transformers.LlamaConfig(**llama))
    assert count(t5) == SIZES["flux-dev"].others["text_encoder_2"] == SIZES["sd3.5-large"].others["text_encoder_3"]
    assert count(umt5) == SIZES["wan2.1-14b"].others["text_encoder"]
    assert count(llama_8b) == SIZES["hunyuan-video"].others["text_encoder"]


def test_vaes() -> None:
    with torch.device("meta"):
        image = diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            latent_channels=16,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
        wan = diffusers.AutoencoderKLWan(base_dim=96, z_dim=16)
        qwen = diffusers.AutoencoderKLQwenImage(base_dim=96, z_dim=16)
        hunyuan = diffusers.AutoencoderKLHunyuanVideo(latent_channels=16)
    assert count(image) == SIZES["flux-dev"].others["vae"]
    assert count(wan) == count(qwen) == SIZES["qwen-image"].others["vae"]
    assert count(hunyuan) == SIZES["hunyuan-video"].others["vae"]
