"""After every publish, what was rolled out and what is trained are the same policy: the importance ratio is 1.

Rollout and update use forward passes of different sizes (2 and 3 samples), so this is rounding only.
"""

from tests.e2e.cluster import Cluster
from tests.e2e.run import Run, assert_counted_once

ROUNDING = 1e-6


def assert_exact(run: Run) -> None:
    assert [step.global_step for step in run.steps] == [1, 2, 3, 4]
    for step in run.steps:
        assert step.first_max_abs_log_ratio <= ROUNDING, f"global step {step.global_step}"
        assert step.max_abs_log_ratio <= ROUNDING, f"global step {step.global_step}"
        assert step.gradient_norm > 1e-4, "nothing was learnt"


def test_full_fine_tuning(short: Run) -> None:
    assert_exact(short)


def test_an_adapter(cluster: Cluster) -> None:
    run = cluster.run("lora", "eval.samples=1", "training.trainable=lora", "training.learning_rate=3e-3")
    assert_counted_once(run, 4)
    assert_exact(run)
    before, after = run.evaluations
    assert before.metrics != after.metrics, "the adapter never reached the generators"
    assert (run.folder / "checkpoints" / "step-000004" / "lora").is_dir()
