"""What is inferred where a time was not measured, and that it is said."""

import pytest

from broker.planning.devices import Device, TimesMissing, completed, widths_of


def test_what_is_known_is_left_alone() -> None:
    device = Device(name="t", role="trainer", generate=2.0, score=0.1, update={1: 1.0})
    assert completed([device]) == (device,)


def test_a_slower_device_is_slower_in_everything() -> None:
    trainer = Device(name="t", role="trainer", generate=2.0, score=0.1, update={1: 1.0, 4: 0.4})
    slow = Device(name="g", role="generator", generate=3.0)
    _, found = completed([trainer, slow])
    assert found.update == {1: pytest.approx(1.5), 4: pytest.approx(0.6)}
    assert found.score == pytest.approx(0.15)
    assert set(found.inferred) == {"score", "update"}


def test_a_device_without_any_time_is_an_average_one() -> None:
    fast = Device(name="g", role="generator", generate=1.0)
    slow = Device(name="h", role="generator", generate=3.0)
    trainer = Device(name="t", role="trainer", update={1: 1.0})
    found = completed([fast, slow, trainer])[2]
    assert found.generate == 2.0
    assert found.inferred == ("generate",)


def test_no_score_anywhere_means_that_scores_take_no_time() -> None:
    found = completed(
        [Device(name="t", role="trainer", generate=1.0, update={1: 1.0}), Device(name="r", role="reward")]
    )
    assert [device.score for device in found] == [0.0, 0.0]
    assert not any(device.inferred for device in found)


def test_a_reward_process_is_like_the_others_of_its_kind() -> None:
    trainer = Device(name="t", role="trainer", generate=1.0, score=9.0, update={1: 1.0})
    known, unknown = Device(name="r", role="reward", score=0.5), Device(name="q", role="reward")
    assert completed([trainer, known, unknown])[2].score == 0.5
    assert completed([trainer, unknown])[1].score == 9.0


@pytest.mark.parametrize(
    ("device", "missing"),
    [
        (Device(name="t", role="trainer", update={1: 1.0}), "generation"),
        (Device(name="g", role="generator", generate=1.0), "update"),
    ],
)
def test_without_a_time_to_infer_from_there_is_no_plan(device: Device, missing: str) -> None:
    with pytest.raises(TimesMissing, match=missing):
        completed([device])


def test_widths_are_sorted() -> None:
    assert widths_of(
        [Device(name="t", role="trainer", update={4: 1.0, 1: 2.0}), Device(name="g", role="generator")]
    ) == [
        1,
        4,
    ]
