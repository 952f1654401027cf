"""The spike guard: by the median of the last 32 norms, across a checkpoint; a skipped step changes nothing."""

from pathlib import Path

import pytest

from digend.engines.guard import FEWEST, REMEMBERED, SpikeGuard
from tests.engines.test_checkpoints import save
from tests.engines.world import bench, job_config, same


def test_a_norm_far_above_the_median_is_refused() -> None:
    guard = SpikeGuard(4.0)
    assert [guard.objection(1.0 + index / 100) for index in range(FEWEST)] == [None] * FEWEST
    assert guard.objection(4.0) is None
    reason = guard.objection(4.2)
    assert reason is not None
    assert "gradient norm 4.2 is more than 4 times (training.spike_factor) the median 1.04 of the last 9" in reason
    assert guard.norms[-1] == 4.2, "where gradients stay large the median follows"


def test_nothing_is_refused_before_there_is_a_usual_norm_nor_without_a_factor() -> None:
    guard = SpikeGuard(2.0)
    assert [guard.objection(10.0**index) for index in range(FEWEST)] == [None] * FEWEST
    free = SpikeGuard(None)
    assert [free.objection(norm) for norm in (*[1.0] * 40, 1e9)] == [None] * 41
    assert len(free.norms) == REMEMBERED


def test_the_window_is_of_the_last_32() -> None:
    guard = SpikeGuard(2.0)
    guard.restore([1.0] * 100)
    assert len(guard.norms) == REMEMBERED
    refused = [guard.objection(3.0) is not None for _ in range(REMEMBERED)]
    assert refused == [True] * 16 + [False] * 16


def test_an_infinite_norm_is_not_remembered() -> None:
    guard = SpikeGuard(2.0)
    guard.objection(float("nan"))
    assert guard.norms == ()


@pytest.mark.parametrize("factor", [None, 3.0])
def test_a_spike_is_skipped_and_a_checkpoint_knows_the_norms(
    flux_folder: Path, tmp_path: Path, factor: float | None
) -> None:
    on = bench("trainer", job_config(flux_folder, training={"spike_factor": factor}), tmp_path)
    on.one_step(0)
    norm = on.engine._training("job-1").guard.norms[0]
    on.engine._training("job-1").guard.restore([norm / 1000] * 9)
    restored = bench("trainer", on.config, tmp_path, checkpoint=save(on, 1).path, version=1)
    assert restored.engine._training("job-1").guard.norms == (norm / 1000,) * 9
    before = restored.values()
    result = restored.one_step(1)
    assert same(before, restored.values()) == (factor is not None)
    assert (result.weights is None) == (factor is not None)
    if factor is not None:
        assert result.skipped is not None
        assert "spike_factor" in result.skipped
        assert restored.engine.applied("job-1") == (1, 2, ())
