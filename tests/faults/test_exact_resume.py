"""kill -9 of the trainer at a random instant, deterministic: what follows is to the bit what it would have been."""

from dataclasses import asdict
from random import Random
from time import sleep

import pytest

from digend.wire.records import RestartRecord, StepRecord
from tests.e2e.cluster import Cluster
from tests.e2e.run import Run

LEARNING = (
    "training.deterministic=true",
    "training.ema_decay=0.9",
    "training.ema_interval=1",
    "training.learning_rate_schedule=cosine",
    "training.warmup_steps=3",
    "training.spike_factor=1e6",
    "training.global_steps=6",
    "data.samples_per_prompt=6",
    "checkpoint.every=1",
    "eval.enabled=false",
)
GRPO = ("training.updates_per_rollout=2", "algorithm.options.kl_coefficient=0.04")
NFT = ("algorithm.name=diffusion_nft", "algorithm.options={}")
LORA = ("training.trainable=lora", "training.lora_rank=4")
MEASURED = ("seconds", "worker_seconds", "gpu_seconds", "bubble_seconds", "flops", "peak_flops", "incarnation")
"""Fields of a StepRecord that are no results; `drift` names workers, which are the same here."""


def results(run: Run) -> dict[int, dict[str, object]]:
    """By global step, of its newest incarnation."""
    return {
        step.global_step: {name: value for name, value in asdict(step).items() if name not in MEASURED}
        for step in run.bodies(StepRecord)
    }


def kept(run: Run) -> dict[str, bytes]:
    newest = max((run.folder / "checkpoints").glob("step-*"))
    return {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}


@pytest.mark.parametrize(
    ("name", "more", "seed"),
    [
        pytest.param("grpo", GRPO, 1),
        pytest.param("grpo-lora", (*GRPO, *LORA), 2, marks=pytest.mark.matrix),
        pytest.param("nft", NFT, 3, marks=pytest.mark.matrix),
        pytest.param("nft-lora", (*NFT, *LORA), 4, marks=pytest.mark.matrix),
        pytest.param("grpo-bf16", (*GRPO, "model.dtype=bfloat16"), 5, marks=pytest.mark.matrix),
    ],
)
def test_it_goes_on_as_if_it_had_not_been_killed(healthy: Cluster, name: str, more: tuple[str, ...], seed: int) -> None:
    rng = Random(seed)
    healthy.submit(f"killed-{name}", *LEARNING, *more)
    healthy.reached(f"killed-{name}", rng.randint(2, 4))
    sleep(rng.random() / 2)
    healthy.replaced("trainer-0", healthy.kill("trainer-0"))
    killed = healthy.completed(f"killed-{name}")
    assert killed.bodies(RestartRecord)
    healthy.all_present(4)
    unkilled = healthy.run(f"unkilled-{name}", *LEARNING, *more)
    assert results(killed) == results(unkilled)
    assert set(kept(killed)) >= {"weights.safetensors", "optimizer.safetensors", "averages.safetensors"}
    assert kept(killed) == kept(unkilled)
