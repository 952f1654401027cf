"""Times from the tasks of a run."""

import pytest

from broker.planning.observed import Cut, Measured, Observed, measured, merged

CUT = Cut(samples=8, width=2)


def tasks(worker: str, label: str, *seconds: float, samples: int = 0) -> list[Observed]:
    return [Observed(worker=worker, task=label, seconds=each, num_samples=samples) for each in seconds]


def test_medians_without_the_first() -> None:
    found = measured(
        tasks("g", "generate", 90.0, 8.0, 4.0, 6.0, samples=4)
        + tasks("g", "score", 9.0, 0.4, samples=4)
        + tasks("t", "update", 80.0, 16.0, 16.0)
        + tasks("t", "commit", 5.0, 1.0),
        CUT,
    )
    generator, trainer = found.devices
    assert (generator.role, generator.generate, generator.score) == ("generator", 1.5, 0.1)
    assert (trainer.role, trainer.update) == ("trainer", {2: 2.0})
    assert (found.commit, found.switch) == (1.0, 0.0)


def test_one_task_is_better_than_none() -> None:
    assert measured(tasks("t", "update", 8.0), CUT).devices[0].update == {2: 1.0}


def test_the_switch_is_half_of_what_an_update_takes_longer_after_tag() -> None:
    run = tasks("t", "update", 8.0, 8.0) + tasks("t", "assist", 4.0, samples=8)
    found = measured(run + tasks("t", "update", 11.0) + run[2:] + tasks("t", "update", 11.0, 8.0), CUT)
    assert found.switch == 1.5
    assert found.devices[0].update == {2: 1.0}
    assert found.devices[0].generate == 0.5
    assert not found.devices[0].inferred


def test_what_receipts_name_as_switches_counts_there_and_back() -> None:
    there = Observed(worker="t", task="assist", seconds=4.0, num_samples=8, switch=0.25)
    back = Observed(worker="t", task="update", seconds=8.0, switch=0.75)
    found = measured([*tasks("t", "update", 8.0, 8.0), there, back, *tasks("t", "update", 8.0), there, back], CUT)
    assert found.switch == 0.5
    assert (found.devices[0].update, found.devices[0].generate) == ({2: 1.0}, 0.5)


def test_a_trainer_that_never_generated_is_compared_with_the_others_in_evaluation() -> None:
    run = (
        tasks("g", "evaluate", 4.0, samples=4)
        + tasks("g", "generate", 8.0, samples=4)
        + tasks("t", "evaluate", 6.0, samples=4)
        + tasks("t", "update", 8.0)
    )
    trainer = measured(run, CUT).devices[1]
    assert trainer.generate == pytest.approx(3.0)  # half as long again as the generator's 2.0
    assert trainer.inferred == ("generate",)


def test_alone_in_evaluation_it_is_scaled_by_the_denoising_steps() -> None:
    run = tasks("t", "evaluate", 6.0, samples=4) + tasks("t", "update", 8.0)
    assert measured(run, Cut(samples=8, width=1, evaluation=0.5)).devices[0].generate == pytest.approx(0.75)


def test_a_colocated_trainer_generates() -> None:
    run = tasks("t", "generate", 4.0, samples=4) + tasks("t", "score", 1.0, samples=4) + tasks("t", "update", 8.0)
    (device,) = measured(run, CUT).devices
    assert (device.role, device.generate, device.score) == ("trainer", 1.0, 0.25)


def test_runs_at_several_widths_are_one_measurement() -> None:
    narrow = measured(tasks("g", "generate", 4.0, samples=4) + tasks("t", "update", 16.0), Cut(samples=8, width=1))
    wide = measured(tasks("t", "update", 8.0) + tasks("t", "commit", 2.0), Cut(samples=8, width=4))
    found = merged([narrow, wide])
    assert {device.name: dict(device.update) for device in found.devices} == {"g": {}, "t": {1: 2.0, 4: 1.0}}
    assert found.devices[0].generate == 1.0
    assert found.commit == 2.0
    assert merged([Measured(devices=())]).devices == ()


def test_of_several_ranks_is_what_one_of_them_would_take() -> None:
    """Without what they waited for each other; a whole micro-batch was drawn twice as fast."""
    waited = Observed(worker="t", task="update", seconds=5.0, gather=1.0)
    found = measured(
        [waited, waited, *tasks("t", "assist", 4.0, samples=8)], Cut(samples=8, width=2, ranks=4, speed_up=2.0)
    )
    assert found.devices[0].update == {2: 2.0}
    assert found.devices[0].generate == 1.0
    assert measured([waited, waited], CUT).devices[0].update == {2: 5.0 / 8}
