"""Plug-ins by name: found, refused with the nearest name, and loaded without torch."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from digend import plugins
from digend.models.spec import ModelSpec

ROOT = Path(__file__).parents[2]


def test_the_built_in_table_is_that_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {group: dict(table) for group, table in plugins.OWN.items()} == declared


def test_names_find_specs() -> None:
    assert plugins.model_spec("flux").name == "flux"
    assert plugins.algorithm_spec("flow_grpo").name == "flow_grpo"
    assert plugins.reward_spec("jpeg_compressibility").name == "jpeg_compressibility"
    assert set(plugins.available(plugins.REWARDS)) >= {"shapes_both", "shapes_independent"}


@pytest.mark.parametrize(
    ("call", "name", "words"),
    [
        (plugins.model_spec, "fluxx", "unknown model family 'fluxx'; did you mean flux?"),
        (plugins.algorithm_spec, "flow-grpo", "unknown algorithm 'flow-grpo'; did you mean flow_grpo?"),
        (plugins.reward_spec, "shape_both", "did you mean shapes_both?"),
        (plugins.reward_spec, "zzz", "jpeg_compressibility, jpeg_incompressibility"),
    ],
)
def test_unknown_names_name_the_nearest(call: object, name: str, words: str) -> None:
    assert callable(call)
    with pytest.raises(plugins.PluginError) as error:
        call(name)
    assert words in str(error.value)


def test_options_are_checked_by_the_plug_in() -> None:
    spec = plugins.algorithm_spec("flow_grpo")
    options = plugins.validate_options(spec, {"clip_range": 1e-3}, "algorithm.options")
    assert options.model_dump()["clip_range"] == 1e-3


@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({"clip_rnage": 1e-3}, "algorithm.options.clip_rnage", "did you mean clip_range?"),
        ({"clip_range": "wide"}, "algorithm.options.clip_range", "valid number"),
        ({"window_range": [0, "x"]}, "algorithm.options.window_range.1", "valid integer"),
        ({"zzzzz": 1}, "algorithm.options.zzzzz", "known: adv_clip_max"),
    ],
)
def test_refused_options_have_a_key_path(options: dict[str, object], path: str, words: str) -> None:
    spec = plugins.algorithm_spec("flow_grpo")
    with pytest.raises(plugins.PluginOptionError) as error:
        plugins.validate_options(spec, options, "algorithm.options")
    assert error.value.path == path
    assert words in error.value.message
    assert str(error.value).startswith(f"{path}: ")


def test_a_plug_in_without_options_says_so() -> None:
    spec = plugins.reward_spec("jpeg_compressibility")
    with pytest.raises(plugins.PluginOptionError, match="it has no options"):
        plugins.validate_options(spec, {"quality": 1}, "rewards[0].options")


def test_references() -> None:
    assert isinstance(plugins.load_object("digend.models.flux:spec"), ModelSpec)
    for reference, words in (
        ("digend.models.flux", "module:attribute"),
        ("digend.nowhere:spec", "cannot be loaded"),
        ("digend.models.flux:nothing", "cannot be loaded"),
    ):
        with pytest.raises(plugins.PluginError, match=words):
            plugins.load_object(reference)


def test_every_entry_point_loads_with_torch_blocked() -> None:
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "diffusers", "transformers", "peft", "numpy", "PIL"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from digend import plugins
calls = {plugins.MODELS: plugins.model_spec, plugins.ALGORITHMS: plugins.algorithm_spec,
         plugins.REWARDS: plugins.reward_spec}
for group, call in calls.items():
    for name in plugins.available(group):
        spec = call(name)
        try:
            plugins.validate_options(spec, {"no_such_option": 1}, "x")
        except plugins.PluginOptionError:
            print(group, name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == sum(len(table) for table in plugins.OWN.values())
