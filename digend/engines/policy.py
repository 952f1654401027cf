"""The policy: the trainable parameters of a loaded model, by the names under which they are published.

Owns which parameters learn (all of the trainable modules, or a LoRA adapter's), their names
`{component}/{parameter}`, how a published version is checked and bound, and the frozen base as the reference of a KL.
Must not know optimizers or tasks.

Invariants: a version binds every trainable parameter or none. Binding copies values into the memory the parameters
already have. A fresh adapter's values depend on the job's seed and the parameter's name only, so every process of a job
starts from the same policy. The base of an adapter is never changed: an adapter is swapped, not merged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from digend.engines.arrays import dtype_name, to_tensor
from digend.engines.protocols import TaskFault
from digend.engines.stored import Stored
from digend.models.spec import Model
from digend.rl.seeds import seed_of
from digend.wire.tensors import Array

ADAPTER = "default"

Exchange = Callable[[Mapping[str, Parameter], Mapping[str, Tensor]], dict[str, Tensor]]
"""Gives parameters other values and returns what they had."""
Fill = Callable[[Tensor, Stored], object]
"""Gives its first argument the value of the second."""

BASE, OLD, EMA = "base", "old", "ema"
"""Copies of the parameters: as they were at first; the average that draws samples, where that is not the policy; the
average that evaluation uses.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter's shape; `seed` is the job's."""

    rank: int
    alpha: float
    targets: Sequence[str]
    seed: int


class Policy:
    """What is trained of a model, in full or as an adapter. Raises TaskFault("config") where no module is a target."""

    def __init__(self, model: Model, adapter: Adapter | None, *, ema: bool = False, sent_as: str | None = None) -> None:
        """`ema`: a published version has the moving average beside the weights, under `ema/{name}`; `sent_as`: the
        dtype that it is published in, where that is another than the parameters'.
        """
        self.sent_as = sent_as
        self._modules = dict(model.trainable)
        self._adapter = adapter
        self.form = "full" if adapter is None else "lora"
        for component, module in self._modules.items():
            if adapter is None:
                module.requires_grad_(True)
            else:
                _add_adapter(component, module, adapter)
        self.parameters: dict[str, Parameter] = {
            f"{component}/{name}": parameter
            for component, module in self._modules.items()
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self.copies: dict[str, dict[str, Tensor]] = {}
        if ema:
            self.keep(EMA)
        specs = {name: (dtype_name(each.dtype), tuple(each.shape)) for name, each in self.parameters.items()}
        self._of_policy = specs
        self._exchange: Exchange = _pointed
        sent = {name: (sent_as or dtype, shape) for name, (dtype, shape) in specs.items()}
        self._expected = sent | ({f"{EMA}/{name}": spec for name, spec in sent.items()} if ema else {})

    @property
    def num_parameters(self) -> int:
        """Of the trainable modules, frozen ones included."""
        return sum(each.numel() for module in self._modules.values() for each in module.parameters())

    @property
    def num_trainable(self) -> int:
        return sum(each.numel() for each in self.parameters.values())

    def published(self) -> dict[str, Tensor]:
        """Every trainable parameter as samples are drawn with it, and the moving average: what a version is."""
        drawn_with: Mapping[str, Tensor] = self.copies.get(OLD, self.parameters)
        averages = {f"{EMA}/{name}": each for name, each in self.copies.get(EMA, {}).items()}
        return {**drawn_with, **averages}

    def relaid(self, exchange: Exchange) -> None:
        """The modules' parameters are others, of the same values: know those, and change their values by `exchange`."""
        present = {
            f"{component}/{name}": parameter
            for component, module in self._modules.items()
            for name, parameter in module.named_parameters()
        }
        self.parameters = {name: present[name] for name in self.parameters}
        self._exchange = exchange
        for name in self.copies:
            self.keep(name)

    def check(self, tensors: Mapping[str, Array]) -> int:
        """How many tensors bind: all. Raises TaskFault("weights") else. Reads no values, so any thread may call it."""
        return _bound(tensors, self._expected)

    def bind(self, tensors: Mapping[str, Array]) -> None:
        """Take over a published version in place. Raises TaskFault("weights") before anything is changed."""
        self.check(tensors)
        _fill(self.parameters, tensors)
        _fill({f"{EMA}/{name}": each for name, each in self.copies.get(EMA, {}).items()}, tensors)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the parameters alone. Raises TaskFault("weights") as `bind` does."""
        _bound(tensors, self._of_policy)
        with torch.no_grad():
            for name, target in self.parameters.items():
                target.copy_(tensors[name])

    def restore(self, stored: Mapping[str, Stored], fill: Fill, copy: str | None = None) -> None:
        """The same of a checkpoint, by `fill`; or a copy of the parameters."""
        _bound(stored, self._of_policy)
        targets: Mapping[str, Tensor] = self.parameters if copy is None else self.copies[copy]
        with torch.no_grad():
            for name, target in targets.items():
                fill(target, stored[name])

    def keep(self, name: str) -> None:
        """Make a copy of the present values under a name."""
        self.copies[name] = {key: each.detach().clone() for key, each in self.parameters.items()}

    def keep_base(self) -> None:
        """Remember the present values as the reference; an adapter needs no copy, its base is frozen."""
        if self._adapter is None:
            self.keep(BASE)

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Inside, the modules compute with the copy of that name; with the present values where there is none."""
        learned = self._exchange(self.parameters, self.copies[name]) if name in self.copies else None
        try:
            yield
        finally:
            if learned is not None:
                self._exchange(self.parameters, learned)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the modules compute as the frozen base and record no gradient."""
        with torch.no_grad():
            if self._adapter is None:
                if BASE not in self.copies:
                    raise RuntimeError("keep_base() was not called: there is no reference")
                with self.using(BASE):
                    yield
                return
            modules: list[Any] = list(self._modules.values())
            for module in modules:
                module.disable_adapters()
            try:
                yield
            finally:
                for module in modules:
                    module.enable_adapters()


def _pointed(parameters: Mapping[str, Parameter], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Point the parameters at other memory; returns what they had."""
    had = {name: each.data for name, each in parameters.items()}
    for name, parameter in parameters.items():
        parameter.data = values[name]
    return had


def _bound(tensors: Mapping[str, Array | Tensor | Stored], expected: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    fitting = [name for name, spec in expected.items() if _spec(tensors.get(name)) == spec]
    if len(fitting) == len(expected) == len(tensors):
        return len(fitting)
    bound = f"bound {len(fitting)} of {len(expected)}"
    for name, (dtype, shape) in expected.items():
        if name not in tensors:
            raise TaskFault("weights", f"{bound}: missing {name}")
        if _spec(tensors[name]) != (dtype, shape):
            found, size = _spec(tensors[name]) or ("", ())
            raise TaskFault("weights", f"{bound}: {name} is {found}{list(size)}, the model has {dtype}{list(shape)}")
    extra = next(name for name in tensors if name not in expected)
    raise TaskFault("weights", f"{bound}, and {len(tensors)} were sent: {extra} is no parameter of the model")


def _fill(parameters: Mapping[str, Tensor], tensors: Mapping[str, Array]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(to_tensor(tensors[name]))


def _spec(values: Array | Tensor | Stored | None) -> tuple[str, tuple[int, ...]] | None:
    if values is None:
        return None
    dtype = values.dtype if isinstance(values, Array) else dtype_name(values.dtype)
    return dtype, tuple(values.shape)


def _add_adapter(component: str, module: Any, adapter: Adapter) -> None:
    from peft import LoraConfig

    if not hasattr(module, "add_adapter"):
        raise TaskFault("config", f"training.trainable = lora: {component} of this family is no module of diffusers")
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        target_modules=list(adapter.targets),
        init_lora_weights="gaussian",
    )
    try:
        with torch.random.fork_rng(devices=[]):
            module.add_adapter(config, adapter_name=ADAPTER)
    except ValueError as error:
        raise TaskFault("config", f"training.lora_targets: {error}") from error
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            seed = seed_of("lora", adapter.seed, component, name)
            _start(parameter, 1 / adapter.rank if "lora_A" in name else 0.0, seed)


def _start(parameter: Parameter, std: float, seed: int) -> None:
    """peft's gaussian initialisation, from a generator of our own, in float32 or better."""
    values = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    # Types of 8 bits, in which a base may be stored, have no promotion.
    dtype = parameter.dtype if parameter.dtype.itemsize > torch.float32.itemsize else torch.float32
    parameter.data = (values * std).to(parameter.device, dtype)
