"""`hpsv2`: Human Preference Score v2 (Wu et al. 2023), the cosine of its fine-tuned CLIP ViT-H/14.

Owns the two forms of its weights: a folder in transformers' CLIP layout, or with `checkpoint` the authors' own file,
which open_clip reads (an optional extra). That file is read with weights_only, so it runs no code.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from digend.rewards.local import ImageReward, LocalOptions, model_folder, need, torch_dtype
from digend.rewards.spec import Reward, RewardSpec


class Options(LocalOptions):
    checkpoint: str = Field("", description="A file of the folder in open_clip's form; empty: transformers' layout.")
    architecture: str = Field("ViT-H-14", description="Of that file, as open_clip names it.")


def build(options: BaseModel, device: str) -> Reward:
    if not isinstance(options, Options):
        raise TypeError(f"{type(options).__name__} are no options of hpsv2")
    if options.checkpoint:
        return ImageReward(OpenClip(options, device).score, options.batch_size)
    from digend.rewards.clip_model import Clip

    clip = Clip(options, device)
    return ImageReward(lambda images, prompts, _: clip.cosines(images, prompts).tolist(), options.batch_size)


class OpenClip:
    """The authors' checkpoint through open_clip, with its own picture transform and tokenizer."""

    def __init__(self, options: Options, device: str) -> None:
        import torch

        open_clip = need("open_clip", "open_clip_torch", "hpsv2")
        file = model_folder(options.path) / options.checkpoint
        if not file.is_file():
            raise ValueError(f"checkpoint: no file {file}")
        self._dtype, self._device = torch_dtype(options.dtype), device
        model, _, self._transform = open_clip.create_model_and_transforms(options.architecture, pretrained=None)
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(loaded.get("state_dict", loaded))
        self._model: Any = model.to(device, self._dtype).eval().requires_grad_(False)
        self._tokenizer: Any = open_clip.get_tokenizer(options.architecture)

    def score(self, images: list[Any], prompts: list[str], metadata: object) -> list[float]:
        """Cosine of each picture with its own prompt."""
        import torch

        with torch.no_grad():
            pixels = torch.stack([self._transform(image) for image in images]).to(self._device, self._dtype)
            seen = self._model.encode_image(pixels, normalize=True).float()
            read = self._model.encode_text(self._tokenizer(prompts).to(self._device), normalize=True).float()
        values: list[float] = (seen * read).sum(-1).tolist()
        return values


spec = RewardSpec(name="hpsv2", options=Options, builder="digend.rewards.hpsv2:build", images_only=True)
