"""`local_judge`: a vision-language model of transformers from a local folder, in the process that scores.

Owns its options and the cut into batches; the question and the reading of answers are `judge`'s, so an address and a
folder can stand in for each other. Torch-free: the model is `vlm_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from digend.rewards.judge import JudgeOptions
from digend.rewards.local import LocalOptions, picture
from digend.rewards.spec import Batch, Reward, RewardSpec, Scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from digend.rewards.vlm_model import Answer, VisionLanguageModel


class Options(LocalOptions, JudgeOptions):
    """The folder holds model, processor and chat template, as transformers saves them."""

    batch_size: Annotated[int, Field(ge=1, description="Samples that are answered at a time.")] = 4


class LocalJudge:
    """One question a sample; all frames of a video are in it, in order. The likeliest answer, so the same each time."""

    def __init__(self, model: VisionLanguageModel, options: Options) -> None:
        self._model = model
        self._options = options

    def score(self, batch: Batch) -> Scores:
        read: list[float | str] = []
        size = self._options.batch_size
        for start in range(0, len(batch.prompts), size):
            rows = slice(start, start + size)
            pictures = [[picture(frame) for frame in _frames(each)] for each in batch.pixels[rows]]
            questions = [self._options.ask(prompt) for prompt in batch.prompts[rows]]
            read += [self._read(answer) for answer in self._model.answers(pictures, questions)]
            batch.scored(len(read))
        return Scores(
            values=[None if isinstance(each, str) else each for each in read],
            failures={at: each for at, each in enumerate(read) if isinstance(each, str)},
        )

    def _read(self, answer: Answer) -> float | str:
        found = self._options.read(answer.text)
        if isinstance(found, str) and answer.is_cut:
            return f"{found} (cut at max_new_tokens = {self._options.max_new_tokens})"
        return found


def _frames(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """[F, 3, H, W] of an image or a video."""
    return pixels[None] if pixels.ndim == 3 else pixels


def build(options: BaseModel, device: str) -> Reward:
    """Raises ValueError that names the folder, or the package that its processor needs."""
    from digend.rewards.vlm_model import VisionLanguageModel

    if not isinstance(options, Options):
        raise TypeError(f"{type(options).__name__} are no options of local_judge")
    return LocalJudge(VisionLanguageModel(options, options.max_new_tokens, device), options)


spec = RewardSpec(name="local_judge", options=Options, builder="digend.rewards.local_judge:build")
