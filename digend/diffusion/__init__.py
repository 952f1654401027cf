"""Transitions, log-probs and losses of flow-matching samplers: the maths on tensors.

The names are loaded on first use, so that importing this package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from digend.diffusion.kernels import Transition, predicted_clean, transition
    from digend.diffusion.losses import ClippedObjective, clipped_objective, kl_to_reference

__all__ = [
    "ClippedObjective",
    "Transition",
    "clipped_objective",
    "kl_to_reference",
    "predicted_clean",
    "transition",
]

_HOME = {
    "Transition": "kernels",
    "predicted_clean": "kernels",
    "transition": "kernels",
    "ClippedObjective": "losses",
    "clipped_objective": "losses",
    "kl_to_reference": "losses",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
