"""Rewards of images on videos: one wrapper around any of them, chosen by `frames` of the job file. Pure numpy.

Invariant: a frame that failed fails its video, with the frame named; a failure never counts as a low value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from digend.rewards.spec import Batch, Reward, Scores

ONE: Mapping[str, Callable[[int], int]] = {
    "first": lambda num: 0,
    "middle": lambda num: num // 2,
    "last": lambda num: num - 1,
}
MANY: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}


class PerFrame:
    """`how`: first, middle or last frame, or mean, min or max over all. Images go through as they are."""

    def __init__(self, reward: Reward, how: str) -> None:
        self._reward = reward
        self._how = how

    def score(self, batch: Batch) -> Scores:
        if batch.pixels.ndim == 4:
            return self._reward.score(batch)
        num = batch.pixels.shape[1]
        if self._how in ONE:
            return self._reward.score(replace(batch, pixels=np.ascontiguousarray(batch.pixels[:, ONE[self._how](num)])))
        frames = replace(
            batch,
            pixels=batch.pixels.reshape(-1, *batch.pixels.shape[2:]),
            prompts=[prompt for prompt in batch.prompts for _ in range(num)],
            metadata=[each for each in batch.metadata for _ in range(num)],
            scored=lambda done: batch.scored(done // num),
        )
        return self._together(self._reward.score(frames), len(batch.prompts), num)

    def _together(self, scores: Scores, num_videos: int, num: int) -> Scores:
        if len(scores.values) != num_videos * num:
            raise ValueError(f"gave {len(scores.values)} values for {num_videos * num} frames")
        values: list[float | None] = []
        failures: dict[int, str] = {}
        for video in range(num_videos):
            own = scores.values[video * num : (video + 1) * num]
            known = [value for value in own if value is not None and np.isfinite(value)]
            if len(known) < num:
                at = next(at for at, value in enumerate(own) if value is None or not np.isfinite(value))
                failures[video] = f"of frame {at}: {scores.failures.get(video * num + at, f'gave {own[at]}')}"
            values.append(MANY[self._how](known) if len(known) == num else None)
        components = {
            name: [MANY[self._how](part[at : at + num]) for at in range(0, len(part), num)]
            for name, part in scores.components.items()
        }
        return Scores(values=values, components=components, failures=failures)
