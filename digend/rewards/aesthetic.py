"""`aesthetic`: LAION's aesthetic predictor (Schuhmann 2022), five linear layers on a CLIP embedding, about 1 to 10.

The folder is a CLIP (theirs is ViT-L/14) in transformers' layout with the predictor's weights beside it as
`head.safetensors`. It ignores prompts.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from digend.rewards.local import ImageReward, LocalOptions, model_folder
from digend.rewards.spec import Reward, RewardSpec

HEAD = "head.safetensors"


def build(options: BaseModel, device: str) -> Reward:
    import torch

    from digend.rewards.clip_model import Clip
    from digend.rewards.mlp_head import load_head

    if not isinstance(options, LocalOptions):
        raise TypeError(f"{type(options).__name__} are no options of a local model")
    head = load_head(model_folder(options.path) / HEAD, device)
    clip = Clip(options, device)

    def score(images: list[Any], prompts: object, metadata: object) -> list[float]:
        with torch.no_grad():
            values: list[float] = head(clip.images(images)).tolist()
        return values

    return ImageReward(score, options.batch_size)


spec = RewardSpec(name="aesthetic", options=LocalOptions, builder="digend.rewards.aesthetic:build", images_only=True)
