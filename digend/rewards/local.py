"""What rewards by models from a local folder share: options, pictures as PIL has them, batches. Torch-free.

Owns the cut into batches of `batch_size` and the words for a folder or package that is missing. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from digend.rewards.spec import Batch, Scores

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

Metadata = Mapping[str, str]
Values = Sequence[float | None]


class LocalOptions(BaseModel):
    """Where the model is, in which type it computes, and how many samples share a forward pass."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    path: Annotated[str, Field(min_length=1, description="Folder with the model, at this path on every box.")]
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Of weights and forward pass.")
    batch_size: Annotated[int, Field(ge=1, description="Samples a forward pass.")] = 16


class ImageReward:
    """`score_images(images, prompts, metadata)` gives a value, or a reason as text, for each image of a batch."""

    def __init__(
        self, score_images: Callable[[list[Any], list[str], list[Metadata]], Sequence[float | str]], batch_size: int
    ) -> None:
        self._score_images = score_images
        self._batch_size = batch_size

    def score(self, batch: Batch) -> Scores:
        """Raises ValueError for videos: a frame's aggregate is the job's to choose."""
        if batch.pixels.ndim != 4:
            raise ValueError('it scores images, not videos: say frames = "mean" beside its name in the job file')
        values: list[float | None] = []
        failures: dict[int, str] = {}
        for start in range(0, len(batch.prompts), self._batch_size):
            rows = slice(start, start + self._batch_size)
            images = [picture(each) for each in batch.pixels[rows]]
            for answer in self._score_images(images, list(batch.prompts[rows]), list(batch.metadata[rows])):
                if isinstance(answer, str):
                    failures[len(values)] = answer
                values.append(None if isinstance(answer, str) else answer)
            batch.scored(len(values))
        return Scores(values=values, failures=failures)


def picture(pixels: NDArray[np.float32]) -> Any:
    """[3, H, W] in [0, 1] as an RGB image of PIL."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0))


def model_folder(path: str) -> Path:
    """The folder. Raises ValueError that names it where it is none."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(f"path: {folder} is not a folder on this box")
    return folder


def torch_dtype(name: str) -> torch.dtype:
    import torch

    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def need(module: str, package: str, extra: str) -> Any:
    """A module of an optional package. Raises ValueError with the line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"needs {package} ({error}): pip install 'digend[{extra}]', then restart the workers"
        ) from error
