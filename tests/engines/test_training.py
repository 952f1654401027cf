"""A micro-batch is in the gradient once or not at all; a commit is exactly what was applied."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.tasks import ResetTask, UpdateItem
from tests.engines.world import JOB, NUM_PAIRS, WINDOW, Bench, bench, job_config, same


@pytest.fixture
def trainer(flux_folder: Path, tmp_path: Path) -> Bench:
    return bench("trainer", job_config(flux_folder), tmp_path)


def micro_batches(on: Bench) -> list[list[UpdateItem]]:
    return [on.items([group], on.generate(on.generate_task(groups=[group]))) for group in on.groups()]


def test_sums_and_pairs(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(flux_folder).model_copy(update={"keep_pairs": True})
    on = bench("trainer", config, tmp_path)
    first = micro_batches(on)[0]
    result = on.update(first)
    assert result.num_pairs == len(first) * len(WINDOW) == len(result.pairs)
    assert {pair[:3] for pair in result.pairs} == {("p0", index, t) for index in range(3) for t in WINDOW}
    assert result.loss_sum == pytest.approx(sum(pair[3] for pair in result.pairs))
    assert result.loss_sum == pytest.approx(-len(WINDOW) * sum(item.advantage for item in first), abs=1e-5)
    assert result.ratio_sum == pytest.approx(result.num_pairs, abs=1e-5)
    assert result.clipped == 0
    assert on.context.steps[-1] == (9, 9)


def test_applied_is_reported(trainer: Bench) -> None:
    batches = micro_batches(trainer)
    assert trainer.engine.applied(JOB) == (0, 0, ())
    trainer.update(batches[1], micro_batch=4, step=2)
    trainer.update(batches[0], micro_batch=3, step=2)
    assert trainer.engine.applied(JOB) == (0, 2, (4, 3))
    trainer.commit(step=2, micro_batches=(3, 4))
    assert trainer.engine.applied(JOB) == (1, 3, ())


def test_the_same_micro_batch_twice_is_refused(trainer: Bench) -> None:
    batch = micro_batches(trainer)[0]
    trainer.update(batch)
    before = trainer.gradient()
    with pytest.raises(TaskFault, match="in the gradient already") as fault:
        trainer.update(batch)
    assert fault.value.error.reason == "applied"
    assert same(before, trainer.gradient())


def test_another_global_step_than_the_open_one_is_refused(trainer: Bench) -> None:
    batches = micro_batches(trainer)
    trainer.update(batches[0], step=0)
    with pytest.raises(TaskFault, match="step 0 is open") as fault:
        trainer.update(batches[1], micro_batch=1, step=1)
    assert fault.value.error.reason == "applied"


def test_commit_of_another_set_is_refused_and_changes_nothing(trainer: Bench) -> None:
    trainer.update(micro_batches(trainer)[0])
    before, values = trainer.gradient(), trainer.values()
    for wrong in ((), (1,), (0, 1)):
        with pytest.raises(TaskFault) as fault:
            trainer.commit(micro_batches=wrong)
        assert fault.value.error.reason == "applied"
    assert same(before, trainer.gradient())
    assert same(values, trainer.values())
    assert trainer.commit().weights is not None
    assert not same(values, trainer.values())


@pytest.mark.parametrize("lost", ["trajectory", "condition"])
def test_a_lost_blob_leaves_the_gradient_alone(trainer: Bench, lost: str) -> None:
    batches = micro_batches(trainer)
    trainer.update(batches[0])
    before = trainer.gradient()
    again = bench_items_with_fresh_condition(trainer, batches[1])
    trainer.context.lost.add(getattr(again[-1], lost).id)
    with pytest.raises(TaskFault) as fault:
        trainer.update(again, micro_batch=1)
    assert fault.value.error.reason == "blob_lost"
    assert same(before, trainer.gradient())
    assert trainer.engine.applied(JOB) == (0, 0, (0,))


def bench_items_with_fresh_condition(on: Bench, items: list[UpdateItem]) -> list[UpdateItem]:
    """The last item's condition is a blob that this process has not pulled yet."""
    arrays = dict(on.context.pull(items[-1].condition))
    arrays["more"] = next(iter(arrays.values()))
    return [*items[:-1], replace(items[-1], condition=on.context.serve(arrays))]


def test_a_revoked_lease_leaves_the_gradient_alone(trainer: Bench) -> None:
    batches = micro_batches(trainer)
    trainer.update(batches[0])
    before = trainer.gradient()
    trainer.context.steps.clear()
    trainer.context.cancel_at = 2
    with pytest.raises(Cancelled):
        trainer.update(batches[1], micro_batch=1)
    assert same(before, trainer.gradient())
    trainer.context.cancel_at = None
    trainer.update(batches[1], micro_batch=1)
    assert not same(before, trainer.gradient())


def test_a_loss_that_is_not_finite_names_the_pair_and_leaves_the_gradient_alone(trainer: Bench) -> None:
    batches = micro_batches(trainer)
    trainer.update(batches[0])
    before = trainer.gradient()
    bad = [*batches[1][:2], replace(batches[1][2], advantage=float("nan"))]
    with pytest.raises(TaskFault, match=r"p1/2 at timestep 0") as fault:
        trainer.update(bad, micro_batch=1)
    assert fault.value.error.reason == "non_finite"
    assert same(before, trainer.gradient())


def test_a_gradient_that_is_not_finite_skips_the_step(trainer: Bench) -> None:
    trainer.update(micro_batches(trainer)[0])
    values = trainer.values()
    name = "transformer/proj_out.weight"
    gradient = trainer.parameters[name].grad
    assert gradient is not None
    gradient[0, 0] = float("inf")
    result = trainer.commit()
    assert result.weights is None
    assert result.skipped is not None
    assert name in result.skipped
    assert same(values, trainer.values())
    assert trainer.engine.applied(JOB) == (0, 1, ())
    assert all(grad is None for grad in trainer.gradient().values())


def test_the_gradient_is_scaled_by_planned_over_real(flux_folder: Path, tmp_path: Path) -> None:
    norms = []
    for z in (NUM_PAIRS, NUM_PAIRS // 2):
        on = bench("trainer", job_config(flux_folder), tmp_path)
        on.update(micro_batches(on)[0])
        norms.append(on.commit(z=z).gradient_norm)
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-6)
    assert norms[0] > 0


def test_nothing_selected_closes_the_step_without_one(trainer: Bench) -> None:
    values = trainer.values()
    result = trainer.commit(micro_batches=(), z=0)
    assert (result.weights, result.gradient_norm) == (None, 0.0)
    assert result.skipped is not None
    assert "Z = 0" in result.skipped
    assert same(values, trainer.values())


def test_reset_drops_what_was_applied(trainer: Bench) -> None:
    batch = micro_batches(trainer)[0]
    trainer.update(batch)
    first = trainer.gradient()
    trainer.engine.run(ResetTask(job=JOB, incarnation=0), trainer.context)
    assert trainer.engine.applied(JOB) == (0, 0, ())
    trainer.update(batch)
    assert same(first, trainer.gradient())


def test_zero_advantages_count_but_do_not_pull(trainer: Bench) -> None:
    items = [replace(item, advantage=0.0) for item in micro_batches(trainer)[0]]
    assert trainer.update(items).num_pairs == 9
    assert trainer.commit().gradient_norm == 0.0


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_kl_is_to_the_base_and_grows_with_the_distance(flux_folder: Path, tmp_path: Path, trainable: str) -> None:
    options = {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}
    config = job_config(
        flux_folder,
        algorithm={"options": options},
        training={"trainable": trainable, "lora_rank": 4, "learning_rate": 1e-2},
    )
    on = bench("trainer", config, tmp_path)
    kls, losses = [], []
    for step in range(2):
        groups = on.groups(step)
        result = on.update(on.items(groups, on.generate(on.generate_task(version=step, step=step))), step=step)
        kls.append(result.kl_sum)
        losses.append(result.loss_sum)
        on.commit(version=step, step=step)
    assert kls[0] == 0.0
    assert kls[1] > 1e-9
    assert losses[1] == pytest.approx(losses[0] + 0.1 * kls[1], abs=1e-4)
    assert all(parameter.requires_grad for parameter in on.parameters.values())


def test_same_seed_same_weights_bit_for_bit(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(flux_folder, training={"deterministic": True})
    runs = []
    for _ in range(2):
        on = bench("trainer", config, tmp_path)
        for step in range(2):
            on.one_step(step)
        runs.append(on.values())
    assert same(*runs)
    assert not torch.are_deterministic_algorithms_enabled()


def test_half_precision_trains_an_adapter_in_float32(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(flux_folder, model={"dtype": "bfloat16"}, training={"trainable": "lora", "lora_rank": 4})
    on = bench("trainer", config, tmp_path)
    assert {parameter.dtype for parameter in on.parameters.values()} == {torch.float32}
    assert on.one_step(0).weights is not None
    groups = on.groups(1)
    update = on.update(on.items(groups, on.generate(on.generate_task(version=1, step=1))), step=1)
    assert update.max_abs_log_ratio < 1e-3
