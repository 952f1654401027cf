"""`image_reward`: ImageReward (Xu et al. 2023), BLIP's text encoder looking at the picture, five linear layers.

The folder is a BLIP in transformers' layout (BlipForImageTextRetrieval and its processor), with ImageReward's head
beside it as `head.safetensors`. The value is standardised with the mean and deviation that the authors publish.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from digend.rewards.local import ImageReward, LocalOptions, model_folder, torch_dtype
from digend.rewards.spec import Reward, RewardSpec

HEAD = "head.safetensors"
MEAN, STD = 0.16717362830052426, 1.0333394966054072
MAX_TOKENS = 35


class Blip:
    """Head of the text encoder's first state, cross-attending to the picture."""

    def __init__(self, options: LocalOptions, device: str) -> None:
        from transformers import BlipForImageTextRetrieval, BlipProcessor

        from digend.rewards.mlp_head import load_head

        folder = model_folder(options.path)
        self._head = load_head(folder / HEAD, device)
        self._dtype, self._device = torch_dtype(options.dtype), device
        self._processor: Any = BlipProcessor.from_pretrained(str(folder))
        model: Any = BlipForImageTextRetrieval.from_pretrained(str(folder), dtype=self._dtype)
        self._model: Any = model.to(device).eval().requires_grad_(False)

    def score(self, images: list[Any], prompts: list[str], metadata: object) -> list[float]:
        import torch

        with torch.no_grad():
            pixels = self._processor.image_processor(images=images, return_tensors="pt")["pixel_values"]
            seen = self._model.vision_model(pixel_values=pixels.to(self._device, self._dtype)).last_hidden_state
            tokens = self._processor.tokenizer(
                prompts, padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
            ).to(self._device)
            read = self._model.text_encoder(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                encoder_hidden_states=seen,
                encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=self._device),
            ).last_hidden_state
            values: list[float] = ((self._head(read[:, 0].float()) - MEAN) / STD).tolist()
        return values


def build(options: BaseModel, device: str) -> Reward:
    if not isinstance(options, LocalOptions):
        raise TypeError(f"{type(options).__name__} are no options of a local model")
    return ImageReward(Blip(options, device).score, options.batch_size)


spec = RewardSpec(
    name="image_reward", options=LocalOptions, builder="digend.rewards.image_reward:build", images_only=True
)
