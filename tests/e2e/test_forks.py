"""`digenctl fork`: the same job from its own checkpoint goes on to the bit; what does not fit is refused by name."""

import json
from dataclasses import asdict

import pytest

from digend.exitcodes import ExitCode
from digend.net.client import RequestFailed
from digend.wire.records import EvaluationRecord, OriginRecord, StepRecord
from tests.e2e.cluster import Cluster
from tests.e2e.run import Run

EXACT = (
    "training.deterministic=true",
    "training.ema_decay=0.9",
    "training.ema_interval=1",
    "training.learning_rate_schedule=cosine",
    "training.warmup_steps=2",
    "training.global_steps=3",
    "checkpoint.every=1",
    "schedule.generators=[]",
    "eval.samples=1",
)
MEASURED = ("seconds", "worker_seconds", "gpu_seconds", "bubble_seconds", "flops", "peak_flops", "incarnation")
"""Fields of a StepRecord that are no results."""


def results(step: StepRecord) -> dict[str, object]:
    return {name: value for name, value in asdict(step).items() if name not in MEASURED}


def files(run: Run, global_step: int) -> dict[str, bytes]:
    folder = run.folder / "checkpoints" / f"step-{global_step:06d}"
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@pytest.fixture(scope="module")
def parent(cluster: Cluster) -> Run:
    return cluster.run("parent", *EXACT)


@pytest.fixture(scope="module")
def fork(cluster: Cluster, parent: Run) -> Run:
    done = cluster.ctl("fork", "parent", "--global-step", "1", "--id", "child", "--json")
    assert json.loads(done.stdout)["parent"] == "parent"
    return cluster.completed("child")


def test_unchanged_it_goes_on_as_its_parent_did(parent: Run, fork: Run) -> None:
    assert [step.global_step for step in fork.steps] == [2, 3]
    assert [results(step) for step in fork.steps] == [results(step) for step in parent.steps[1:]]
    assert files(fork, 3) == files(parent, 3)
    assert set(files(fork, 3)) == {"weights.safetensors", "optimizer.safetensors", "averages.safetensors"}
    assert files(fork, 1) == files(parent, 1), "its first act is a copy of its own"


def test_its_parent_is_named_everywhere(cluster: Cluster, fork: Run) -> None:
    (origin,) = fork.bodies(OriginRecord)
    assert (origin.parent, origin.global_step, origin.version) == ("parent", 1, 1)
    assert [record.label for record in fork.bodies(EvaluationRecord)] == ["before", "after"]
    assert (fork.summary["job"]["parent"], fork.summary["job"]["parent_step"]) == ("parent", 1)
    assert "forked from parent at global step 1" in (fork.folder / "report.html").read_text("utf-8")
    assert "parent      parent, from its checkpoint of global step 1" in cluster.ctl("show", "job", "child").stdout
    (row,) = [line for line in cluster.ctl("jobs", "-o", "wide").stdout.splitlines() if line.startswith("child")]
    assert "parent at 1" in row
    assert "forked from parent at global step 1, policy version 1" in cluster.ctl("story", "child").stdout


def test_with_a_changed_key_it_goes_another_way(cluster: Cluster, parent: Run) -> None:
    changes = ("training.learning_rate=1e-2",)
    assert cluster.driver.fork("parent", 2, job="other", overrides=changes).created
    assert not cluster.driver.fork("parent", 2, job="other", overrides=changes).created
    run = cluster.completed("other")
    assert [step.global_step for step in run.steps] == [3]
    assert run.weights() != parent.weights()
    assert run.steps[0].reward_mean == parent.steps[2].reward_mean, "its first samples are those of its parent"


def refused(cluster: Cluster, code: ExitCode, *changes: str, parent: str = "parent", at: int = 2) -> str:
    with pytest.raises(RequestFailed) as error:
        cluster.driver.fork(parent, at, overrides=changes)
    assert error.value.code == code
    return error.value.message


def test_a_global_step_without_a_checkpoint_names_those_there_are(cluster: Cluster, parent: Run) -> None:
    message = refused(cluster, ExitCode.NOT_FOUND, at=7)
    assert "no checkpoint of global step 7" in message
    assert "there are 1, 2, 3" in message


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("training.trainable=lora", "'full'", "'lora'"),
        ("training.lora_rank=4", "32", "4"),
        ("model.path=/elsewhere", "shapes-flux", "'/elsewhere'"),
        ("model.dtype=bfloat16", "'float32'", "'bfloat16'"),
        ("training.optimizer=adafactor", "'adamw'", "'adafactor'"),
        ("training.global_steps=2", "parent: 3", "training.global_steps = 2"),
    ],
)
def test_a_change_that_the_checkpoint_does_not_fit_is_refused(
    cluster: Cluster, parent: Run, change: str, before: str, after: str
) -> None:
    message = refused(cluster, ExitCode.BAD_CONFIG, change)
    assert change.partition("=")[0] in message
    assert before in message
    assert after in message


def test_an_average_that_was_not_kept_cannot_be_gone_on_with(cluster: Cluster, short: Run) -> None:
    message = refused(cluster, ExitCode.BAD_CONFIG, "training.ema_decay=0.5", parent="short")
    assert "training.ema_decay = 0.5" in message
    assert "None" in message
    nft = ("algorithm.name=diffusion_nft", "algorithm.options={}")
    assert "'flow_grpo'" in refused(cluster, ExitCode.BAD_CONFIG, *nft, parent="short")


def test_checkpoints_on_another_box_are_said_to_be_there(cluster: Cluster, parent: Run) -> None:
    folder = parent.folder / "checkpoints"
    away = folder.rename(folder.with_name("away"))
    try:
        message = refused(cluster, ExitCode.NOT_FOUND)
    finally:
        away.rename(folder)
    assert f"{folder}, where the trainer of job parent wrote its checkpoints, cannot be read" in message
