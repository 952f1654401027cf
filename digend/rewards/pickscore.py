"""`pickscore`: PickScore (Kirstain et al. 2023), exp(logit_scale) * cosine / 26 (Flow-GRPO's divisor).

The model is a CLIP ViT-H/14 in transformers' layout, with its processor beside it in the same folder.
"""

from __future__ import annotations

from pydantic import BaseModel

from digend.rewards.local import ImageReward, LocalOptions
from digend.rewards.spec import Reward, RewardSpec

DIVISOR = 26.0


def build(options: BaseModel, device: str) -> Reward:
    from digend.rewards.clip_model import Clip

    if not isinstance(options, LocalOptions):
        raise TypeError(f"{type(options).__name__} are no options of a local model")
    clip = Clip(options, device)
    factor = clip.scale / DIVISOR
    return ImageReward(lambda images, prompts, _: (factor * clip.cosines(images, prompts)).tolist(), options.batch_size)


spec = RewardSpec(name="pickscore", options=LocalOptions, builder="digend.rewards.pickscore:build", images_only=True)
