"""`rejection_threshold`: pairs too far from their rollout are left out of the loss, counted, and still part of Z."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.wire.tasks import UpdateItem
from tests.engines.world import NUM_PAIRS, WINDOW, Bench, bench, job_config

FAR = 0.5


def items_of(on: Bench) -> list[UpdateItem]:
    """A rollout whose log-probs of p0/0 were altered at one timestep, as if another GPU had drawn it."""
    groups = on.groups()
    items = on.items(groups, on.generate(on.generate_task(groups=groups)))
    blob = dict(on.context.blobs[items[0].trajectory.id])
    name = "p0/0/log_probs"
    array = blob[name]
    values = torch.frombuffer(bytearray(array.data), dtype=getattr(torch, array.dtype)).clone()
    values[1] += FAR
    blob[name] = replace(array, data=values.numpy().tobytes())
    on.context.blobs[items[0].trajectory.id] = blob
    return items


def trainer(folder: Path, root: Path, algorithm: str, **options: Any) -> Bench:
    window = {"window_size": len(WINDOW), "window_range": [0, len(WINDOW)], "old_log_prob": "rollout"}
    config = job_config(
        folder, model={"dtype": "float64"}, algorithm={"name": algorithm, "options": {**window, **options}}
    )
    return bench("trainer", config, root)


@pytest.mark.parametrize("algorithm", ["flow_grpo", "grpo_guard"])
def test_a_rejected_pair_has_no_gradient(flux_folder: Path, tmp_path: Path, algorithm: str) -> None:
    options = {"kl_coefficient": 0.04}
    on = trainer(flux_folder, tmp_path, algorithm, rejection_threshold=FAR / 2, **options)
    items = items_of(on)
    result = on.update(items)
    assert (result.rejected, result.num_pairs) == (1, NUM_PAIRS)
    (far,) = [each for each in result.sample_drift if each.max > FAR / 2]
    assert (far.prompt, far.index, far.num_pairs) == ("p0", 0, len(WINDOW))
    assert far.whole == pytest.approx(FAR, abs=1e-6)
    assert [each.timestep for each in result.timestep_drift if each.max > FAR / 2] == [WINDOW[1]]
    without = trainer(flux_folder, tmp_path, algorithm, **options)
    rest = [replace(items_of(without)[0], timesteps=items[0].timesteps), *items_of(without)[1:]]
    rest[0] = _but_one(without, rest[0])
    assert without.update(rest).num_pairs == NUM_PAIRS - 1
    for name, gradient in without.gradient().items():
        other = on.gradient()[name]
        if gradient is not None:
            assert other is not None
            assert float((gradient - other).abs().max()) <= 1e-12


def _but_one(on: Bench, item: UpdateItem) -> UpdateItem:
    """The item without its second timestep, as a trajectory of its own."""
    blob = dict(on.context.blobs[item.trajectory.id])
    for name in ("log_probs", "means"):
        key = f"{item.prompt}/{item.index}/{name}"
        if key in blob:
            array = blob[key]
            step = len(array.data) // array.shape[0]
            data = bytes(array.data)
            kept = data[:step] + data[2 * step :]
            blob[key] = replace(array, data=kept, shape=(array.shape[0] - 1, *array.shape[1:]))
    trajectory = on.context.serve(blob)
    return replace(item, trajectory=trajectory, timesteps=(item.timesteps[0], item.timesteps[2]))


def test_without_a_threshold_nothing_is_rejected(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "flow_grpo")
    assert on.update(items_of(on)).rejected == 0


def test_an_algorithm_without_log_probs_has_no_drift(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder, algorithm={"name": "diffusion_nft", "options": {}}), tmp_path)
    groups = on.groups()
    result = on.update(on.items(groups, on.generate(on.generate_task(groups=groups))))
    assert (result.sample_drift, result.timestep_drift) == ((), ())
