"""Half precision through the daemons: every family in bfloat16, and in float16 with its loss scale; a local judge."""

from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.run import assert_counted_once
from tests.e2e.test_families import overrides
from tests.families import FAMILIES
from tests.rewards.tiny_models import save_idefics

pytestmark = pytest.mark.matrix

LARGEST = 2e-4
"""Of |log ratio|, where rollout and update have batches of their own; docs/results.md has the table."""


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize(("dtype", "trainable"), [("bfloat16", "full"), ("bfloat16", "lora"), ("float16", "full")])
def test_two_global_steps(cluster: Cluster, tmp_path: Path, name: str, dtype: str, trainable: str) -> None:
    family = FAMILIES[name]
    run = cluster.run(
        f"{name}-{dtype}-{trainable}".replace("_", "-"),
        *overrides(family, family.build(tmp_path / "model")),
        f"model.dtype={dtype}",
        f"training.trainable={trainable}",
        "training.lora_rank=4",
    )
    assert_counted_once(run, 2)
    steps = [line for line in run.metrics if line["kind"] == "step"]
    assert all(line["train/max_abs_log_ratio"] <= LARGEST for line in steps)
    assert all(line["train/gradient_norm"] > 0 for line in steps)
    assert [line.get("train/loss_scale") for line in steps] == [None if dtype == "bfloat16" else 65536.0] * 2


def test_a_judge_from_a_folder(cluster: Cluster, tmp_path: Path) -> None:
    options = f"{{path='{save_idefics(tmp_path / 'judge')}',pattern='(\\d)',highest=9,max_new_tokens=4,batch_size=2}}"
    run = cluster.run(
        "judged",
        f"rewards=[{{name='local_judge',options={options}}}]",
        "eval.metrics=[]",
        "training.global_steps=2",
        "schedule.scoring=dedicated",
    )
    assert_counted_once(run, 2)
    assert all(step.num_masked == 0 for step in run.steps)
