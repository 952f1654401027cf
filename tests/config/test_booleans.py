"""true is no number: not in any key of a job or node file, nor in the options of any plug-in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from clients.times_file import TimesConfig
from digend import plugins
from digend.config.checking import validated
from digend.config.job import JobConfig
from digend.config.keys import keys_of
from digend.config.node import NodeConfig
from digend.config.source import source_of
from tests.config.support import changed, write_job
from tests.config.test_job_file import message_of

NUMBERS = ("integer", "number", "one of 0", "list of integers", "list of numbers", "list of 2")


def option_models() -> Iterator[type[BaseModel]]:
    for group, spec_of in (
        (plugins.MODELS, plugins.model_spec),
        (plugins.ALGORITHMS, plugins.algorithm_spec),
        (plugins.REWARDS, plugins.reward_spec),
    ):
        for name in plugins.available(group):
            yield spec_of(name).options


def said(path: str, value: object) -> dict[str, Any]:
    """A table in which one key is said; in an array of tables, in its first."""
    table: Any = value
    for part in reversed(path.split(".")):
        name = part.removesuffix("[]")
        table = {name: [table] if name != part else table}
    return dict(table)


@pytest.mark.parametrize("model", [JobConfig, NodeConfig, TimesConfig, *dict.fromkeys(option_models())])
def test_true_is_no_number(model: type[BaseModel]) -> None:
    for key in keys_of(model).values():
        if not key.type.startswith(NUMBERS) or "true or false" in key.type:
            continue
        inner = [True, True] if key.type.startswith("list") else True
        _, problems = validated(model, said(key.path, inner), source_of("a.toml", ""))
        found = [each for each in problems if each.key.replace("[0]", "[]").removesuffix("[]") == key.path]
        assert found, f"{key.path} takes true for {key.type}"
        assert "true" in (found[0].value or "")


def test_the_error_names_key_value_and_what_is_expected(tmp_path: Path) -> None:
    text = changed('"flow_grpo"', '"diffusion_nft"').replace(
        "window_size = 3\nwindow_range = [0, 3]", "decay_type = true"
    )
    message = message_of(write_job(tmp_path, text))
    assert message.startswith(
        f"{tmp_path / 'job.toml'}:16: algorithm.options.decay_type = true: expected one of 0, 1, 2 ("
    )
