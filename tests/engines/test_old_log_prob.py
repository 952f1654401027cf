"""Which log-prob the importance ratio is to: the new one, the rollout's, or the trainer's own under the old weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engines.world import Bench, bench, job_config


def second_update(folder: Path, root: Path, mode: str | None, **training: object) -> dict[str, torch.Tensor]:
    """The float64 gradient of samples that are one version old: the second of two updates of one rollout."""
    options: dict[str, object] = {"clip_range": 0.04, **({} if mode is None else {"old_log_prob": mode})}
    config = job_config(
        folder,
        model={"dtype": "float64"},
        algorithm={"options": options},
        training={"updates_per_rollout": 2, "learning_rate": 1e-2, "lora_rank": 4, **training},
    )
    on = bench("trainer", config, root)
    groups = on.groups(window=(0, 1, 2, 3))
    items = on.items(groups, on.generate(on.generate_task(groups=groups)))
    on.update(items)
    on.commit()
    return gradient(on, items)


def gradient(on: Bench, items: list) -> dict[str, torch.Tensor]:  # type: ignore[type-arg]
    on.engine.run(replace(on.update_task(items, step=1), version=0), on.context)
    return {name: grad for name, grad in on.gradient().items() if grad is not None}


def difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_recomputed_under_the_old_weights_it_is_the_rollouts(flux_folder: Path, tmp_path: Path, trainable: str) -> None:
    by_mode = {
        mode: second_update(flux_folder, tmp_path, mode, trainable=trainable)
        for mode in ("rollout", "recompute", "current", None)
    }
    assert difference(by_mode["rollout"], by_mode["recompute"]) <= 1e-10
    assert difference(by_mode["rollout"], by_mode[None]) == 0
    assert difference(by_mode["rollout"], by_mode["current"]) > 1e-6


def test_copies_of_old_weights_go_when_nobody_needs_them(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(
        flux_folder, algorithm={"options": {"old_log_prob": "recompute"}}, training={"updates_per_rollout": 2}
    )
    on = bench("trainer", config, tmp_path)
    job = on.engine._job
    assert job is not None
    for step in range(3):
        on.one_step(step)
        assert list(job.policy.copies) == [f"version {step}"]


def test_on_policy_nothing_is_kept(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder, algorithm={"options": {"old_log_prob": "recompute"}}), tmp_path)
    on.one_step(0)
    job = on.engine._job
    assert job is not None
    assert job.policy.copies == {}
