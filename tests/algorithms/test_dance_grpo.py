"""dance_grpo: its recipe as the driver draws it, and what it warns about."""

from pathlib import Path

import pytest

from digend.algorithms.dance_grpo import DanceGrpoOptions, rules, spec, warnings
from digend.algorithms.spec import SamplingRules
from digend.config.job import JobConfig
from digend.rl.advantages import AdvantageRule, normalise_group
from digend.rl.selection import select_best_of_n
from tests.engines.world import job_config


def config(**sampling: object) -> JobConfig:
    recipe = {"num_timesteps": 16, "kernel": "dance_sde", "noise_level": 0.3, **sampling}
    return job_config(Path("model"), sampling=recipe, algorithm={"name": "dance_grpo", "options": {}})


def of(**options: object) -> DanceGrpoOptions:
    return DanceGrpoOptions.model_validate(options)


def test_the_recipe() -> None:
    assert rules(of(), config()) == SamplingRules(
        window_size=None,
        window_lo=0,
        window_hi=15,
        timestep_fraction=0.6,
        timestep_order="random",
        shared_initial_noise=True,
        ddof=1,
        eps=1e-8,
        clip_range=1e-4,
    )
    assert list(warnings(of(), config())) == []


def test_advantages_are_of_the_whole_group_and_selected_after() -> None:
    """Groups (1, 3) and (0, 2) give -+0.70710678 in DanceGRPO's own code; half of a group is kept, best and worst."""
    drawn = rules(of(best_of_n=2), config())
    rule = AdvantageRule(std="group", ddof=drawn.ddof, eps=drawn.eps, clip_max=drawn.clip_max)
    assert normalise_group("a", (1.0, 3.0), rule).advantages == pytest.approx((-0.70710678, 0.70710678), abs=1e-7)
    group = normalise_group("b", (1.0, 3.0, 0.0), rule).advantages
    assert select_best_of_n(group, drawn.best_of_n) == (1, 2)
    assert group[1] == pytest.approx(1.0910894, abs=1e-6)


def test_another_kernel_is_a_warning() -> None:
    (line,) = warnings(of(), config(kernel="flow_sde"))
    assert line.startswith("sampling.kernel = flow_sde: ")


def test_a_clip_range_of_ppo_is_a_warning() -> None:
    (line,) = spec.warnings(of(clip_range=0.2), config())
    assert line.startswith("algorithm.options.clip_range = 0.2: nothing will ever be clipped")
