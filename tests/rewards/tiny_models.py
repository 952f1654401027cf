"""Tiny random models of the true architectures, saved as the real ones are: no weights are fetched."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    BertTokenizer,
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipImageProcessor,
    BlipProcessor,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
)

from digend.rewards.mlp_head import PLACES, WIDTHS
from tests.tokenizers import WORDS, clip_tokenizer

__all__ = ["save_blip", "save_clip", "save_head"]

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
SIZE = 32


def save_clip(folder: Path) -> Path:
    """CLIPModel with a projection of 12, and its processor."""
    torch.manual_seed(0)
    tokenizer = clip_tokenizer()
    text = {
        **SMALL,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 20,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {**SMALL, "image_size": SIZE, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=12, logit_scale_init_value=4.6052)
    CLIPModel(config).save_pretrained(folder)
    sizes = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
    CLIPProcessor(image_processor=CLIPImageProcessor(**sizes), tokenizer=tokenizer).save_pretrained(folder)
    return folder


def save_blip(folder: Path) -> Path:
    """BlipForImageTextRetrieval, whose text encoder looks at the picture, and its processor."""
    torch.manual_seed(1)
    tokenizer = bert_tokenizer(folder)
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 48, "encoder_hidden_size": 16}
    vision = {**SMALL, "image_size": SIZE, "patch_size": 8}
    config = BlipConfig(text_config=text, vision_config=vision, projection_dim=12, image_text_hidden_size=12)
    BlipForImageTextRetrieval(config).save_pretrained(folder)
    images = BlipImageProcessor(size={"height": SIZE, "width": SIZE})
    BlipProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def bert_tokenizer(folder: Path) -> Any:
    """Whole words, between [CLS] and [SEP]."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return BertTokenizer(vocab={word: at for at, word in enumerate(words)})


def save_head(file: Path, width: int) -> None:
    """The linear layers of the aesthetic predictor and of ImageReward."""
    torch.manual_seed(2)
    sizes = (width, *WIDTHS)
    weights = {}
    for at, place in enumerate(PLACES):
        weights[f"layers.{place}.weight"] = torch.randn(sizes[at + 1], sizes[at]) / sizes[at] ** 0.5
        weights[f"layers.{place}.bias"] = torch.randn(sizes[at + 1]) / 10
    save_file(weights, file)
