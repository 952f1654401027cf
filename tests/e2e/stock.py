"""What a person does with a trained pipeline: stock diffusers, in this process. Knows of digend only how seeds are made
(docs/architecture.md), so that the noise is that of the evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digend.rl.seeds import seed_of

EVAL_SEED = 99


def drawn_by_the_stock_pipeline(folder: Path, prompts: Sequence[tuple[str, str, int]]) -> dict[str, NDArray[np.uint8]]:
    """(uid, text, K) -> uint8 [K, 3, H, W] a uid, as `FluxPipeline.__call__` makes them from the evaluation's noise."""
    import torch
    from diffusers import DiffusionPipeline

    torch.set_num_threads(1)
    pipeline: Any = DiffusionPipeline.from_pretrained(str(folder))
    pipeline.set_progress_bar_config(disable=True)
    drawn = {}
    for uid, text, count in prompts:
        rngs = [torch.Generator().manual_seed(seed_of("evaluate", EVAL_SEED, uid, index)) for index in range(count)]
        images = pipeline(
            prompt=text,
            num_images_per_prompt=count,
            height=16,
            width=16,
            num_inference_steps=4,
            guidance_scale=0.0,
            max_sequence_length=8,
            generator=rngs,
        ).images
        drawn[uid] = np.stack([np.asarray(image).transpose(2, 0, 1) for image in images])
    return drawn
