"""The linear layers that the aesthetic predictor and ImageReward have on top of their embeddings. Imports torch.

Both have Linear 1024, 128, 64, 16, 1 with dropout between them and no activation, and keep their weights as
layers.0, .2, .4, .6 and .7. The width of the embedding is read off the file.
"""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

WIDTHS = (1024, 128, 64, 16, 1)
PLACES = (0, 2, 4, 6, 7)


class Head(nn.Module):
    """[B, width] to [B]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (width, *WIDTHS)
        linears = {f"{place}": nn.Linear(sizes[at], sizes[at + 1]) for at, place in enumerate(PLACES)}
        self.layers = nn.ModuleDict(linears)

    def forward(self, embeddings: Tensor) -> Tensor:
        for layer in self.layers.values():
            embeddings = layer(embeddings)
        return embeddings[:, 0]


def load_head(file: Path, device: str) -> Head:
    """In float32, frozen. Raises ValueError that names the file where it is none of this form."""
    if not file.is_file():
        raise ValueError(f"path: no file {file}: the head's weights in safetensors")
    weights = {name.removeprefix("mlp."): value.float() for name, value in load_file(file).items()}
    first = weights.get("layers.0.weight")
    if first is None:
        raise ValueError(f"path: {file} has no layers.0.weight (it has {', '.join(sorted(weights)[:4])})")
    head = Head(first.shape[1])
    try:
        head.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"path: {file}: {str(error).splitlines()[-1].strip()}") from error
    return head.to(device).eval().requires_grad_(False)
