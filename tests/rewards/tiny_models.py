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
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from digend.rewards.mlp_head import PLACES, WIDTHS
from tests.tokenizers import WORDS, clip_tokenizer, qwen_tokenizer

__all__ = ["save_blip", "save_clip", "save_head", "save_idefics"]

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


CHAT = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def save_idefics(folder: Path) -> Path:
    """Idefics3ForConditionalGeneration over a Llama, its processor and chat template. It can say digits only."""
    torch.manual_seed(3)
    tokenizer = qwen_tokenizer("rate how well the picture shows it from 0 to 5")
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": SIZE}, max_image_size={"longest_edge": SIZE}, do_image_splitting=False
    )
    processor = Idefics3Processor(image_processor=images, tokenizer=tokenizer, image_seq_len=4, chat_template=CHAT)
    marks = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    text = {**SMALL, **marks, "model_type": "llama", "vocab_size": len(tokenizer), "bos_token_id": None}
    vision = {**SMALL, "image_size": SIZE, "patch_size": 8}
    config = Idefics3Config(
        text_config=text,
        vision_config=vision,
        scale_factor=2,
        image_token_id=processor.image_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Idefics3ForConditionalGeneration(config)
    for parameter in model.parameters():
        parameter.data.mul_(20 if parameter.ndim > 1 else 1)  # as they are initialised, no picture would matter
    digits = {tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)}
    model.generation_config.suppress_tokens = [at for at in range(len(tokenizer)) if at not in digits]
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_head(file: Path, width: int) -> None:
    """The linear layers of the aesthetic predictor and of ImageReward."""
    torch.manual_seed(2)
    sizes = (width, *WIDTHS)
    weights = {}
    for at, place in enumerate(PLACES):
        weights[f"layers.{place}.weight"] = torch.randn(sizes[at + 1], sizes[at]) / sizes[at] ** 0.5
        weights[f"layers.{place}.bias"] = torch.randn(sizes[at + 1]) / 10
    save_file(weights, file)
