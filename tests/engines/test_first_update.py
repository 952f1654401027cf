"""With unchanged weights the importance ratio is 1, in another process and at another batch size than the rollout's."""

from pathlib import Path

import pytest

from tests.engines.world import MemoryContext, bench, job_config, same

LARGEST = 1e-6


@pytest.mark.parametrize("trainable", ["full", "lora"])
@pytest.mark.parametrize("kernel", ["flow_sde", "cps"])
def test_ratio_is_one_after_every_publish(flux_folder: Path, tmp_path: Path, trainable: str, kernel: str) -> None:
    config = job_config(
        flux_folder,
        training={"trainable": trainable, "lora_rank": 4, "update_batch": 3, "timestep_width": 2},
        sampling={"rollout_batch": 4, "kernel": kernel},
    )
    context = MemoryContext()
    trainer = bench("trainer", config, tmp_path, context)
    generator = bench("generator", config, tmp_path, context)
    assert same(trainer.values(), generator.values())
    for step in range(3):
        groups = trainer.groups(step)
        rollout = generator.generate(generator.generate_task(version=step, step=step, groups=groups))
        update = trainer.update(trainer.items(groups, rollout), step=step)
        assert update.max_abs_log_ratio <= LARGEST
        assert update.num_pairs == 18
        weights = trainer.commit(version=step, step=step).weights
        assert weights is not None
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
