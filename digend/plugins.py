"""Plug-ins by name: model families, algorithms and rewards, found as entry points of installed packages. Torch-free.

Owns the lookup, the check that an entry point gives what its group promises, and the check of a plug-in's options. An
entry point names a spec, "package.module:attribute"; importing it must not import torch, so that the driver can call
everything here. `OWN` repeats the entry points of pyproject.toml, for a source tree that is not installed; a test keeps
the two equal.

Must not know what a plug-in does, nor build one (`digend.engines` does that).
"""

import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from digend.algorithms.spec import AlgorithmSpec
from digend.config.errors import nearest
from digend.models.spec import ModelSpec
from digend.rewards.spec import RewardSpec

MODELS: Final = "digend.models"
ALGORITHMS: Final = "digend.algorithms"
REWARDS: Final = "digend.rewards"

OWN: Final[Mapping[str, Mapping[str, str]]] = {
    MODELS: {
        "flux": "digend.models.flux:spec",
        "sd3": "digend.models.sd3:spec",
        "qwen_image": "digend.models.qwen_image:spec",
        "hunyuan_video": "digend.models.hunyuan_video:spec",
        "wan": "digend.models.wan:spec",
        "wan22": "digend.models.wan22:spec",
    },
    ALGORITHMS: {
        "flow_grpo": "digend.algorithms.flow_grpo:spec",
        "dance_grpo": "digend.algorithms.dance_grpo:spec",
        "mix_grpo": "digend.algorithms.mix_grpo:spec",
        "grpo_guard": "digend.algorithms.grpo_guard:spec",
        "diffusion_nft": "digend.algorithms.diffusion_nft:spec",
    },
    REWARDS: {
        "jpeg_compressibility": "digend.rewards.jpeg:compressibility",
        "jpeg_incompressibility": "digend.rewards.jpeg:incompressibility",
        "shapes_both": "digend.rewards.shapes:both",
        "shapes_independent": "digend.rewards.shapes:independent",
        "http_service": "digend.rewards.http_service:spec",
        "clip_score": "digend.rewards.clip_score:spec",
        "pickscore": "digend.rewards.pickscore:spec",
        "hpsv2": "digend.rewards.hpsv2:spec",
        "aesthetic": "digend.rewards.aesthetic:spec",
        "image_reward": "digend.rewards.image_reward:spec",
        "ocr": "digend.rewards.ocr:spec",
        "openai_judge": "digend.rewards.openai_judge:spec",
        "local_judge": "digend.rewards.local_judge:spec",
    },
}
_WORDS: Final = {MODELS: "model family", ALGORITHMS: "algorithm", REWARDS: "reward"}

Spec = TypeVar("Spec", ModelSpec, AlgorithmSpec, RewardSpec)


class PluginError(ValueError):
    """A plug-in is unknown, offered twice, or broken; the message names it and, where it is unknown, the nearest."""


class PluginOptionError(ValueError):
    """An option of a plug-in is refused. `path` is its key in the job file, such as algorithm.options.clip_range."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def available(group: str) -> dict[str, str]:
    """What a group offers, by name: "module:attribute" each. Raises PluginError where two packages share a name."""
    found: dict[str, str] = {}
    for name, value in _installed(group, tuple((folder, _changed(folder)) for folder in sys.path)):
        if found.setdefault(name, value) != value:
            raise PluginError(f"two installed packages offer the {_WORDS[group]} {name!r}: {found[name]} and {value}")
    return dict(sorted({**OWN.get(group, {}), **found}.items()))


@cache
def _installed(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str], ...]:
    """Names and values of the entry points of packages in sys.path as it was: looking takes 30 ms each time. A package
    that comes or goes changes the time of its folder."""
    return tuple((point.name, point.value) for point in entry_points(group=group))


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def load_object(reference: str) -> object:
    """The object of "module:attribute". Raises PluginError that names what is missing."""
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise PluginError(f"{reference!r} is not of the form module:attribute")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{reference} cannot be loaded: {error}") from error


def _spec(group: str, kind: type[Spec], name: str) -> Spec:
    offered = available(group)
    if name not in offered:
        near = nearest(name, offered)
        hint = f"; did you mean {near}?" if near else ""
        raise PluginError(f"unknown {_WORDS[group]} {name!r}{hint} (known: {', '.join(offered)})")
    spec = load_object(offered[name])
    if not isinstance(spec, kind):
        raise PluginError(
            f"{offered[name]} is a {type(spec).__name__}, but {group} entry points name a {kind.__name__}"
        )
    return spec


model_spec = partial(_spec, MODELS, ModelSpec)
algorithm_spec = partial(_spec, ALGORITHMS, AlgorithmSpec)
reward_spec = partial(_spec, REWARDS, RewardSpec)


def validate_options(
    spec: ModelSpec | AlgorithmSpec | RewardSpec, options: Mapping[str, object], where: str
) -> BaseModel:
    """The plug-in's own option model, filled. `where` is the table's key path, such as "rewards[0].options".

    Raises PluginOptionError for the first option that is refused; for an unknown one it names the nearest.
    """
    try:
        return spec.options.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join([where, *(str(part) for part in first["loc"])])
        raise PluginOptionError(path, _words(spec, first["type"], first["msg"], first["loc"])) from None


def _words(spec: ModelSpec | AlgorithmSpec | RewardSpec, kind: str, message: str, loc: tuple[int | str, ...]) -> str:
    if kind != "extra_forbidden":
        return message[:1].lower() + message[1:]
    known = sorted(spec.options.model_fields)
    near = nearest(str(loc[-1]), known)
    listed = f"known: {', '.join(known)}" if known else "it has no options"
    hint = f"; did you mean {near}?" if near else ""
    return f"unknown option of {spec.name}{hint} ({listed})"
