"""A resolved job as TOML loads back to an equal job."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from digend.config.emit import resolved_toml, toml_value
from digend.config.job import JobConfig
from digend.config.loader import load_job

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-300, max_value=1e300)
values = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    finite,
    words,
    st.lists(st.integers(-9, 9)),
    st.lists(finite),
    st.lists(words),
)
options = st.dictionaries(words, values, max_size=3)


@st.composite
def jobs(draw: st.DrawFn) -> JobConfig:
    reward = {"name": draw(words), "weight": draw(st.floats(-1e6, 1e6)), "options": draw(options)}
    return JobConfig.model_validate(
        {
            "name": draw(st.from_regex(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")),
            "seed": draw(st.integers(-(2**60), 2**60)),
            "model": {"family": draw(words), "path": "/" + draw(words), "options": draw(options)},
            "sampling": {"height": 16, "width": 16, "noise_level": draw(positive)},
            "algorithm": {"options": draw(options)},
            "data": {"prompts": "/" + draw(words), "prompts_per_rollout": 1, "samples_per_prompt": 2},
            "training": {"global_steps": 3, "learning_rate": draw(positive), "lora_targets": draw(st.lists(words))},
            "rewards": [reward],
            "eval": {"prompts": draw(st.none() | words), "metrics": draw(st.lists(st.just({"name": "m"}), max_size=1))},
            "schedule": {"generators": draw(st.none() | st.lists(words, max_size=2))},
        }
    )


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_resolved_toml_is_the_same_job(config: JobConfig) -> None:
    assert JobConfig.model_validate(tomllib.loads(resolved_toml(config))) == config


@given(values)
@settings(derandomize=True)
def test_a_value_on_one_line_is_the_same_value(value: object) -> None:
    text = toml_value(value)
    assert tomllib.loads(f"x = {text}") == {"x": value}


@pytest.mark.parametrize("name", ["shapes-flow-grpo", "flux-dev-lora"])
def test_a_resolved_example_loads_from_anywhere(tmp_path: Path, name: str) -> None:
    config = load_job(Path(__file__).parents[2] / "configs" / "jobs" / f"{name}.toml")
    (tmp_path / "job.toml").write_text(resolved_toml(config), encoding="utf-8")
    assert load_job(tmp_path / "job.toml") == config
