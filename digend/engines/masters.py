"""What the optimizer works on: the policy's trainable parameters in float32 or better, whatever they are stored in.

Owns the precision rule of training. Parameters of 32 bits or more, an adapter's always, are their own masters, and so
are their averages. Those in half precision get a float32 copy of each: gradients are summed into it after every pass,
the optimizer steps it, averages follow it, and the policy's own values are its rounding. Must not know tasks.

Invariant: after `write_back` every parameter and average of the policy is its master, rounded.
"""

from collections.abc import Mapping

import torch
from diffusers.training_utils import EMAModel
from torch import Tensor
from torch.nn import Parameter

from digend.engines.policy import EMA, OLD, Fill, Policy
from digend.engines.stored import Stored

AVERAGED = (OLD, EMA)
"""The copies of the parameters that change in the course of training."""


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype.itemsize < torch.float32.itemsize


class Masters:
    """`parameters` and `averages` (by name of the average, then of the parameter): the policy's own tensors where those
    are precise enough. Made once the policy has its averages."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.parameters: dict[str, Parameter] = {
            name: Parameter(each.detach().float()) if _is_half(each) else each
            for name, each in policy.parameters.items()
        }
        self.averages: dict[str, dict[str, Tensor]] = {
            average: {name: each.float() if _is_half(each) else each for name, each in policy.copies[average].items()}
            for average in AVERAGED
            if average in policy.copies
        }

    @property
    def separate(self) -> bool:
        """Whether any parameter has a master that is not itself."""
        return any(_is_half(each) for each in self._policy.parameters.values())

    def collect(self) -> None:
        """Move the gradients that a backward pass left into the masters'."""
        for name, parameter in self._policy.parameters.items():
            master = self.parameters[name]
            if master is parameter or parameter.grad is None:
                continue
            gradient = parameter.grad.to(master.dtype)
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    def drop(self) -> None:
        """Forget what a pass that broke has left in the policy's own gradients."""
        for name, parameter in self._policy.parameters.items():
            if self.parameters[name] is not parameter:
                parameter.grad = None

    def blend(self, average: str, decay: float) -> None:
        """It keeps the share `decay` of itself and takes the rest from the parameters."""
        with torch.no_grad():
            for name, value in self.averages[average].items():
                value.lerp_(self.parameters[name].detach(), 1 - decay)

    def write_back(self) -> None:
        """The policy takes over what has changed."""
        with torch.no_grad():
            _round(self.parameters, self._policy.parameters)
            for average, values in self.averages.items():
                _round(values, self._policy.copies[average])

    def state(self) -> dict[str, Tensor]:
        """`parameters/{name}` and `{average}/{name}`; nothing where the policy's values are the masters."""
        if not self.separate:
            return {}
        return {
            f"{kind}/{name}": each.detach() for kind, values in self._kinds().items() for name, each in values.items()
        }

    def _kinds(self) -> dict[str, Mapping[str, Tensor]]:
        return {"parameters": self.parameters, **self.averages}

    def load(self, tensors: Mapping[str, Stored], fill: Fill) -> None:
        """Of a checkpoint by `fill`, after the policy is restored. Without tensors they begin at the policy's values.

        Raises KeyError where some are missing.
        """
        policy: dict[str, Mapping[str, Tensor]] = {"parameters": self._policy.parameters, **self._policy.copies}
        with torch.no_grad():
            for kind, values in self._kinds().items():
                for name, value in values.items():
                    if tensors:
                        fill(value, tensors[f"{kind}/{name}"])
                    else:
                        value.copy_(policy[kind][name])


def _round(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        if into[name] is not value:
            into[name].copy_(value)


def moving_average(masters: Masters, decay: float | None) -> EMAModel | None:
    """diffusers' EMAModel over the masters' average: it keeps min((1 + n) / (10 + n), decay) of itself at optimizer
    step n. Its values live in `masters.averages`; nothing else of it needs saving."""
    if decay is None:
        return None
    average = EMAModel(list(masters.parameters.values()), decay=decay)
    average.shadow_params = list(masters.averages[EMA].values())
    return average
