"""`clip_score`: cosine of a picture's and its prompt's CLIP embeddings, -1 to 1; any CLIP of transformers."""

from __future__ import annotations

from pydantic import BaseModel

from digend.rewards.local import ImageReward, LocalOptions
from digend.rewards.spec import Reward, RewardSpec


def build(options: BaseModel, device: str) -> Reward:
    from digend.rewards.clip_model import Clip

    if not isinstance(options, LocalOptions):
        raise TypeError(f"{type(options).__name__} are no options of a local model")
    clip = Clip(options, device)
    return ImageReward(lambda images, prompts, _: clip.cosines(images, prompts).tolist(), options.batch_size)


spec = RewardSpec(name="clip_score", options=LocalOptions, builder="digend.rewards.clip_score:build", images_only=True)
