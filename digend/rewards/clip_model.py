"""A CLIP model from a local folder of transformers: normalised embeddings of pictures and prompts.

Imports torch and transformers, so the torch-free specs import it late. Shapes: B samples, D projection.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import CLIPModel, CLIPProcessor

from digend.rewards.local import LocalOptions, model_folder, torch_dtype


class Clip:
    """Frozen, in eval mode, on its device. Source of the formula: CLIP (Radford et al. 2021), section 2.3."""

    def __init__(self, options: LocalOptions, device: str) -> None:
        folder = str(model_folder(options.path))
        self.dtype, self.device = torch_dtype(options.dtype), device
        self.processor: Any = CLIPProcessor.from_pretrained(folder)
        model: Any = CLIPModel.from_pretrained(folder, dtype=self.dtype)
        self.model: Any = model.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def images(self, images: list[Any]) -> Tensor:
        """[B, D] in float32, each of length 1."""
        pixels = self.processor.image_processor(images=images, return_tensors="pt")["pixel_values"]
        seen = self.model.vision_model(pixel_values=pixels.to(self.device, self.dtype)).pooler_output
        return _unit(self.model.visual_projection(seen))

    @torch.no_grad()
    def prompts(self, prompts: list[str]) -> Tensor:
        """[B, D] in float32, each of length 1; cut at the model's longest prompt."""
        longest = self.model.config.text_config.max_position_embeddings
        tokens = self.processor.tokenizer(
            prompts, padding="max_length", truncation=True, max_length=longest, return_tensors="pt"
        ).to(self.device)
        read = self.model.text_model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        return _unit(self.model.text_projection(read.pooler_output))

    def cosines(self, images: list[Any], prompts: list[str]) -> Tensor:
        """[B] in [-1, 1]: each picture with its own prompt."""
        return (self.images(images) * self.prompts(prompts)).sum(-1)

    @property
    def scale(self) -> float:
        """What the model was trained to multiply cosines by: exp of its logit_scale."""
        return float(self.model.logit_scale.float().exp())


def _unit(embeddings: Tensor) -> Tensor:
    return torch.nn.functional.normalize(embeddings.float(), dim=-1)
