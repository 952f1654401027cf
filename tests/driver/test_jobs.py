"""From a job file to the core's spec."""

from pathlib import Path

import pytest

from daemons.driver.jobs import to_spec
from digend.config.loader import load_job
from digend.config.prompts import PromptRow, read_prompts
from digend.wire.tasks import Prompt
from tests.driver.world import PROMPTS, job_config

DEMO = Path(__file__).parents[2] / "configs/jobs/shapes-flow-grpo.toml"


def test_prompts_have_uids_by_place_and_evaluation_shares_them() -> None:
    spec = to_spec(job_config(), PROMPTS, None, "job-001")
    assert spec.prompts == (
        Prompt(uid="p0000", text="a red circle"),
        Prompt(uid="p0001", text="a green square", metadata={"shape": "square"}),
    )
    assert spec.evaluation.prompts == spec.prompts
    own = to_spec(job_config(), PROMPTS, [PromptRow("a blue cross")], "job-001")
    assert [each.uid for each in own.evaluation.prompts] == ["e0000"]
    assert own.prompts == spec.prompts


def test_the_demo_job_is_what_its_file_says() -> None:
    config = load_job(DEMO)
    spec = to_spec(config, read_prompts(config.data.prompts), None, "demo")
    assert len(spec.prompts) == 36
    assert (spec.prompts_per_rollout, spec.samples_per_prompt, spec.num_micro_batches) == (6, 24, 6)
    assert (spec.rules.window_size, spec.rules.window_lo, spec.rules.window_hi) == (3, 0, 3)
    assert (spec.rules.noise_level, spec.rules.kernel) == (0.7, "flow_sde")
    assert spec.num_timesteps == 8
    assert spec.num_global_steps == config.training.global_steps


def test_keys_reach_the_core() -> None:
    config = job_config(
        schedule={"generators": [], "strategy": "static:2", "quorum": 0.75, "lease_s": 7, "task_retries": 5},
        training={"global_steps": 9, "max_skipped_steps": 2, "deterministic": True},
        eval={"enabled": False, "seed": 5},
    )
    spec = to_spec(config, PROMPTS, None, "x")
    assert (spec.generators, spec.strategy, spec.rules.quorum) == ((), "static:2", 0.75)
    assert (spec.lease_s, spec.task_retries, spec.max_skipped_steps) == (7.0, 5, 2)
    assert (spec.num_global_steps, spec.deterministic) == (9, True)
    assert (spec.evaluation.enabled, spec.evaluation.seed) == (False, 5)


def test_a_window_outside_the_timesteps_is_named() -> None:
    config = job_config(algorithm={"options": {"window_size": 9, "window_range": [0, 9]}})
    with pytest.raises(ValueError, match="window"):
        to_spec(config, PROMPTS, None, "x")


def test_updates_that_do_not_divide_a_rollout_are_named() -> None:
    with pytest.raises(ValueError, match="updates_per_rollout"):
        to_spec(job_config(training={"updates_per_rollout": 3}), PROMPTS, None, "x")
