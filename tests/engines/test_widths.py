"""The TSP width that is measured: nothing of it remains but the number, and it fits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from digend.engines import training
from digend.engines.protocols import Cancelled, TaskFault
from digend.engines.ranks.peers import Alone
from digend.engines.widths import Trial, Tried, fastest, tried, widths_to_try
from digend.wire.tasks import UpdateItem
from tests.engines.world import Bench, bench, job_config, same

TRAININGS: Mapping[str, Mapping[str, object]] = {
    "full": {"trainable": "full"},
    "lora": {"trainable": "lora", "lora_rank": 4, "gradient_checkpointing": True},
}


@dataclass
class Room:
    """A device with room for so many bytes; each pair of a pass takes 10 beside the 100 that are there."""

    limit_bytes: int | None
    rows: list[int] = field(default_factory=list)

    def start(self) -> None:
        self.rows.clear()

    def stop(self) -> None:
        return None

    def held(self) -> int:
        return 100

    def peak(self) -> int:
        return 100 + 10 * max(self.rows)

    def limit(self) -> int | None:
        return self.limit_bytes

    def trial(self, width: int, out: bool = False) -> Trial:
        def run() -> None:
            self.rows.append(width)
            if out:
                raise torch.OutOfMemoryError("no room")

        return Trial(width=width, pairs=width, run=run)


class Together(Alone):
    """Ranks of which this one is asked only."""

    shards = 2


def test_widths_are_doubled_up_to_one_pass() -> None:
    assert widths_to_try(10, lambda width: False) == [1, 2, 4, 8, 10]
    assert widths_to_try(10, lambda width: width >= 4) == [1, 2, 4]
    assert widths_to_try(1, lambda width: True) == [1]


def test_the_fastest_wins_and_among_equals_the_narrowest() -> None:
    times = {1: 1.0, 2: 0.51, 4: 0.505, 8: 0.6}
    assert fastest([Tried(width=width, seconds=seconds) for width, seconds in times.items()]) == 2


@pytest.mark.parametrize(("limit", "fitting"), [(None, [1, 2, 4, 8]), (300, [1, 2, 4, 8]), (180, [1, 2, 4]), (10, [1])])
def test_what_would_not_fit_is_not_tried(limit: int | None, fitting: list[int]) -> None:
    """Eight pairs would take 180 bytes: more than nine tenths of 180."""
    room = Room(limit)
    found = tried([room.trial(width) for width in (1, 2, 4, 8)], Alone(), room)
    assert [each.width for each in found] == fitting


def test_memory_that_runs_out_ends_the_trials() -> None:
    room = Room(None)
    trials = [room.trial(1), room.trial(2), room.trial(4, out=True), room.trial(8)]
    assert [each.width for each in tried(trials, Alone(), room)] == [1, 2]
    with pytest.raises(torch.OutOfMemoryError):
        list(tried(trials, Together(), room))
    assert [each.width for each in tried(trials, Together(), room, too_wide=4)] == [1, 2]


def batches(on: Bench) -> list[list[UpdateItem]]:
    return [on.items([group], on.generate(on.generate_task(groups=[group]))) for group in on.groups()]


def trainer(folder: Path, root: Path, width: object, dtype: str, **more: object) -> Bench:
    config = job_config(folder, model={"dtype": dtype}, training={"timestep_width": width, **more})
    return bench("trainer", config, root)


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_remains_but_the_width(
    flux_folder: Path, tmp_path: Path, dtype: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and random state stay; gradient, optimizer and the next weights are those of the width as a number."""
    measured = trainer(flux_folder, tmp_path / "a", "auto", dtype, **TRAININGS[name])
    before = measured.values()
    first, second = batches(measured)
    seen: list[bool] = []

    def looked(found: list[Tried]) -> int:
        seen.append(same(before, measured.values()))
        seen.append(torch.equal(random, torch.get_rng_state()))
        seen.append(all(gradient is None for gradient in measured.gradient().values()))
        return fastest(found)

    monkeypatch.setattr(training, "fastest", looked)
    random = torch.get_rng_state()
    result = measured.update(first)
    assert seen == [True, True, True]
    assert [width for width, _ in result.tried] == [1, 2, 3]
    assert all(seconds > 0 for _, seconds in result.tried)
    assert result.width in (1, 2, 3)
    assert measured.context.stages.count("measure") == 1
    again = measured.update(second, micro_batch=1)
    assert (again.width, again.tried) == (result.width, ())
    given = trainer(flux_folder, tmp_path / "b", result.width, dtype, **TRAININGS[name])
    for number, items in enumerate(batches(given)):
        assert given.update(items, micro_batch=number).tried == ()
    assert same(given.gradient(), measured.gradient())
    for on in (given, measured):
        on.commit(micro_batches=(0, 1))
    assert same(given.values(), measured.values())
    assert not same(before, measured.values())


def test_a_lease_that_is_revoked_meanwhile_leaves_no_trace(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "auto", "float32")
    first, _ = batches(on)
    on.context.cancel_at = len(on.context.steps) + 3
    with pytest.raises(Cancelled):
        on.update(first)
    on.context.cancel_at = None
    assert all(gradient is None for gradient in on.gradient().values())
    assert on.update(first).tried


def test_too_little_memory_at_one_timestep_is_an_error_as_ever(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "auto", "float32")
    first, _ = batches(on)
    with (
        patch.object(training.Trainer, "_losses", side_effect=torch.OutOfMemoryError("no room")),
        pytest.raises(TaskFault) as fault,
    ):
        on.update(first)
    assert fault.value.error.reason == "out_of_memory"
