"""The optimizer's construction, its state as named tensors, and the search for a gradient that is not finite.

Invariant: `load_state(save_state())` continues bit for bit. State is plain tensors, so it can be kept as safetensors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from digend.config.job import TrainingConfig
from digend.engines.ranks.tensors import gathered, is_cut
from digend.engines.stored import Stored

Place = Callable[[Stored, Tensor], Tensor]

CLIP_EPSILON = 1e-6
"""torch's own, in `clip_grad_norm_`."""

_MOMENTS = ("exp_avg", "exp_avg_sq")
_MATRIX, _VECTOR = ("row_var", "col_var"), ("variance",)


def build_optimizer(parameters: Sequence[torch.nn.Parameter], training: TrainingConfig) -> torch.optim.Optimizer:
    """Of `training.optimizer`; its learning rate is set anew for each step (`learning_rate`).

    Adafactor takes neither betas nor epsilon.
    """
    cut = [each for each in parameters if is_cut(each)]
    whole = [each for each in parameters if not is_cut(each)]
    # What is cut into shards and what is not cannot be stepped in one call.
    groups = [{"params": each} for each in (cut, whole) if each]
    if training.optimizer == "adafactor":
        return torch.optim.Adafactor(groups, lr=training.learning_rate, weight_decay=training.weight_decay)
    return torch.optim.AdamW(
        groups,
        lr=training.learning_rate,
        betas=training.betas,
        eps=training.epsilon,
        weight_decay=training.weight_decay,
    )


def clip(parameters: Sequence[torch.nn.Parameter], largest: float) -> float:
    """Scale the gradient down to the norm `largest`; returns the norm that it had."""
    parts = [[each for each in parameters if is_cut(each)], [each for each in parameters if not is_cut(each)]]
    parts = [part for part in parts if part]
    if len(parts) == 1:
        return float(gathered(torch.nn.utils.clip_grad_norm_(parts[0], largest)))
    gradients = [[each.grad for each in part if each.grad is not None] for part in parts]
    norm = math.hypot(*(float(gathered(torch.nn.utils.get_total_norm(part))) for part in gradients))
    if not norm <= largest:
        for gradient in (each for part in gradients for each in part):
            gradient.mul_(largest / (norm + CLIP_EPSILON))
    return norm


def learning_rate(optimizer: torch.optim.Optimizer, training: TrainingConfig, num_steps: int) -> float:
    """The learning rate of the optimizer step after `num_steps` of them, by diffusers' schedules; keeps no state."""
    from diffusers.optimization import get_scheduler

    constant = training.learning_rate_schedule == "constant"
    schedule: Any = get_scheduler(
        "constant_with_warmup" if constant else training.learning_rate_schedule,
        optimizer,
        num_warmup_steps=training.warmup_steps,
        num_training_steps=training.global_steps,
    )
    return training.learning_rate * float(schedule.lr_lambdas[0](num_steps))


def _kinds(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> tuple[str, ...]:
    """Names of a parameter's state: the number of its steps first, then moments."""
    if isinstance(optimizer, torch.optim.Adafactor):
        return ("step", *(_MATRIX if parameter.ndim > 1 else _VECTOR))
    return ("step", *_MOMENTS)


def save_state(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, Tensor]:
    """`{state}/{parameter}`, the optimizer's own tensors; nothing for parameters that were never stepped."""
    return {
        f"{kind}/{name}": optimizer.state[parameter][kind].detach()
        for name, parameter in parameters.items()
        if parameter in optimizer.state
        for kind in _kinds(optimizer, parameter)
    }


def load_state(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.nn.Parameter],
    tensors: Mapping[str, Stored],
    place: Place,
) -> None:
    """`place` makes of a stored tensor one that is where a parameter is.

    Raises KeyError where a parameter has some of its state but not all, ValueError for tensors of no parameter.
    """
    known = {f"{kind}/{name}" for name, parameter in parameters.items() for kind in _kinds(optimizer, parameter)}
    if unknown := sorted(set(tensors) - known):
        raise ValueError(f"optimizer state of an unknown parameter: {unknown[0]}")
    for name, parameter in parameters.items():
        if f"step/{name}" in tensors:
            step, *moments = _kinds(optimizer, parameter)
            steps = place(tensors[f"{step}/{name}"], torch.empty(()))
            loaded = {kind: place(tensors[f"{kind}/{name}"], parameter) for kind in moments}
            optimizer.state[parameter] = {step: steps, **loaded}


def first_non_finite(parameters: Mapping[str, torch.nn.Parameter], norm: float) -> str | None:
    """Why a step must be skipped, with the first tensor that is not finite; None where the norm is finite."""
    if math.isfinite(norm):
        return None
    for name, parameter in parameters.items():
        if parameter.grad is not None and not bool(torch.isfinite(gathered(parameter.grad)).all()):
            return f"gradient of {name} is not finite"
    return f"gradient norm is {norm}, though every gradient is finite"
