"""mix_grpo: where its window lies at which global step, for all groups alike."""

from dataclasses import fields
from pathlib import Path

import pytest

from broker.plan import plan_rollout
from broker.spec import RolloutRules
from digend.algorithms.mix_grpo import MixGrpoOptions, rules
from digend.config.job import JobConfig
from tests.broker.support import job
from tests.engines.world import job_config


def config(**sampling: object) -> JobConfig:
    return job_config(Path("model"), sampling={"num_timesteps": 25, **sampling}, algorithm={"name": "mix_grpo"})


def of(**options: object) -> MixGrpoOptions:
    return MixGrpoOptions.model_validate(options)


def windows(options: MixGrpoOptions, num_steps: int) -> list[set[tuple[int, ...]]]:
    """The noisy timesteps of each global step's groups."""
    drawn = rules(options, config())
    own = {each.name: getattr(drawn, each.name) for each in fields(drawn)}
    spec = job(num_timesteps=25, rules=RolloutRules(noise_level=0.7, **own))

    def noisy(levels: tuple[float, ...]) -> tuple[int, ...]:
        return tuple(at for at, level in enumerate(levels) if level)

    return [{noisy(group.levels) for batch in plan_rollout(spec, step) for group in batch} for step in range(num_steps)]


def test_the_recipe() -> None:
    drawn = rules(of(), config())
    assert (drawn.window_size, drawn.window_lo, drawn.window_hi) == (4, 0, 24)
    assert (drawn.window_move, drawn.window_every, drawn.window_roll_back) == ("progressive", 25, True)
    assert (drawn.ddof, drawn.eps, drawn.shared_initial_noise) == (1, 1e-8, True)


def test_a_progressive_window_is_one_for_all_groups_and_never_empty() -> None:
    made = windows(of(group_size=3, iters_per_group=2, window_range=[20, 24]), 10)
    first, second = {(20, 21, 22)}, {(21, 22, 23)}
    assert made == [first, first, second, second, first, first, second, second, first, first]
    stays = windows(of(group_size=3, iters_per_group=2, window_range=[20, 24], roll_back=False), 10)
    assert stays == [first, first, *[second] * 8]


def test_a_random_window_is_drawn_for_the_global_step() -> None:
    made = windows(of(sample_strategy="random"), 30)
    assert all(len(each) == 1 for each in made)
    assert len({window for each in made for window in each}) > 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_size": 25}, r"algorithm.options.group_size = 25: "),
        ({"window_range": [22, 25]}, r"algorithm.options.window_range = \[22, 25\]: .*does not fit"),
    ],
)
def test_what_does_not_fit_names_its_key(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rules(of(**options), config())
