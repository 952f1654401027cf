"""`ocr`: how much of the wanted text a reader finds in a picture, 0 to 1. The reader is rapidocr, an optional extra.

The wanted text is the prompt's metadata `target`, else what the prompt has in double quotes. Blanks and capitals do not
count. 1 where the text stands in what was read, else 1 - (edit distance, at most its length) / length; Flow-GRPO's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from digend.rewards.local import ImageReward, need
from digend.rewards.spec import Reward, RewardSpec


class Options(BaseModel):
    """The reader's models come with its package."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    smallest: Annotated[
        int, Field(ge=0, description="Pictures with a shorter side than this are enlarged before they are read.")
    ] = 128


def build(options: BaseModel, device: str) -> Reward:
    if not isinstance(options, Options):
        raise TypeError(f"{type(options).__name__} are no options of ocr")
    reader = need("rapidocr_onnxruntime", "rapidocr-onnxruntime", "ocr").RapidOCR()

    def read(image: Any) -> str:
        found, _ = reader(_as_read(image, options.smallest))
        return "".join(line[1] for line in found or ())

    return ImageReward(lambda images, prompts, metadata: _score(read, images, prompts, metadata), 1)


def _as_read(image: Any, smallest: int) -> Any:
    """BGR, as the reader takes it, and large enough for it."""
    import numpy as np

    factor = -(-smallest // min(image.size))
    larger = image.resize((image.width * factor, image.height * factor)) if factor > 1 else image
    return np.ascontiguousarray(np.asarray(larger)[:, :, ::-1])


def _score(
    read: Callable[[Any], str], images: list[Any], prompts: list[str], metadata: list[Mapping[str, str]]
) -> list[float | str]:
    answers: list[float | str] = []
    for image, prompt, each in zip(images, prompts, metadata, strict=True):
        wanted = target_of(prompt, each)
        answers.append(found_share(read(image), wanted) if wanted else "the prompt has no text in quotes and no target")
    return answers


def target_of(prompt: str, metadata: Mapping[str, str]) -> str:
    """The text that should be in the picture; "" where none is named."""
    if metadata.get("target"):
        return metadata["target"]
    parts = prompt.split('"')
    return parts[1] if len(parts) > 2 else ""


def found_share(read: str, wanted: str) -> float:
    """1 for all of it, 0 for none; both without blanks and in small letters."""
    read, wanted = "".join(read.split()).lower(), "".join(wanted.split()).lower()
    if not wanted or wanted in read:
        return 1.0
    return 1.0 - min(edit_distance(read, wanted), len(wanted)) / len(wanted)


def edit_distance(one: str, other: str) -> int:
    """Levenshtein's: fewest insertions, deletions and replacements."""
    row = list(range(len(other) + 1))
    for at, left in enumerate(one, 1):
        before, row[0] = row[0], at
        for to, right in enumerate(other, 1):
            before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (left != right))
    return row[-1]


spec = RewardSpec(name="ocr", options=Options, builder="digend.rewards.ocr:build", images_only=True)
