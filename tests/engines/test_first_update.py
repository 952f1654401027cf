"""With unchanged weights the importance ratio is 1, in another process and at another batch size than the rollout's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.world import MemoryContext, bench, job_config, same
from tests.families import FAMILIES

LARGEST = 1e-6
LORA = {"trainable": "lora", "lora_rank": 4}


@pytest.mark.parametrize("trainable", ["full", "lora"])
@pytest.mark.parametrize("kernel", ["flow_sde", "cps"])
def test_ratio_is_one_after_every_publish(flux_folder: Path, tmp_path: Path, trainable: str, kernel: str) -> None:
    ratio_is_one(flux_folder, tmp_path, training={"trainable": trainable, "lora_rank": 4}, sampling={"kernel": kernel})


@pytest.mark.parametrize("trainable", ["full", "lora"])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "flux"])
def test_of_every_family(folders: Callable[[str], Path], tmp_path: Path, name: str, trainable: str) -> None:
    """With its guidance, so that the gradient goes through both passes; with checkpointing where weights are whole."""
    training = {"trainable": trainable, "lora_rank": 4, "gradient_checkpointing": trainable == "full"}
    ratio_is_one(folders(name), tmp_path, **FAMILIES[name].tables(training=training))


def ratio_is_one(folder: Path, root: Path, **changes: dict[str, object]) -> None:
    """At three global steps: the rollout in batches of 4, the update in batches of 3 x 2 timesteps."""
    changes["training"] = {"update_batch": 3, "timestep_width": 2, **changes["training"]}
    changes["sampling"] = {"rollout_batch": 4, **changes["sampling"]}
    config, context = job_config(folder, **changes), MemoryContext()
    trainer = bench("trainer", config, root, context)
    generator = bench("generator", config, root, context)
    assert same(trainer.values(), generator.values())
    for step in range(3):
        groups = trainer.groups(step)
        rollout = generator.generate(generator.generate_task(version=step, step=step, groups=groups))
        update = trainer.update(trainer.items(groups, rollout), step=step)
        assert update.max_abs_log_ratio <= LARGEST
        assert update.num_pairs == 18
        before = trainer.values()
        weights = trainer.commit(version=step, step=step).weights
        assert weights is not None
        assert not same(trainer.values(), before)
        tensors = context.pull(weights.blob)
        assert generator.engine.check_weights(weights, tensors) == weights.num_tensors
        generator.engine.adopt(weights, tensors)
        assert same(trainer.values(), generator.values())


def test_the_ratio_is_not_one_when_the_generator_lags(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(flux_folder)
    context = MemoryContext()
    trainer = bench("trainer", config, tmp_path, context)
    generator = bench("generator", config, tmp_path, context)
    trainer.one_step(0)
    groups = trainer.groups(1)
    rollout = generator.generate(generator.generate_task(version=0, step=1, groups=groups))
    assert trainer.update(trainer.items(groups, rollout), step=1).max_abs_log_ratio > 10 * LARGEST
