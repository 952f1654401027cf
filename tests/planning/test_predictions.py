"""Times of a micro-batch, and step times worked out by hand."""

from dataclasses import replace

import pytest

from broker.planning.predictions import ablation, colocated, quickest
from broker.planning.shape import Shape, loss_of, model_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from broker.strategies import Static
from tests.planning.support import GENERATOR, SHAPE, TRAINER, placement


def seconds(model: Model) -> dict[str, float]:
    return {name: model.times.seconds(ticks) for name, ticks in model.times.given().items()}


def test_times_of_a_micro_batch() -> None:
    place = placement(GENERATOR, replace(GENERATOR, name="b", score=0.2), commit=3.0, switch=0.5)
    model = model_of(place, SHAPE, groups=2, width=3)
    assert seconds(model) == {"generate": 4, "assist": 8, "update": 2, "score": 1.6, "switch": 0.5, "commit": 3}


def test_the_slowest_share_is_the_time_of_the_pool() -> None:
    """Four samples on speeds 1, 1, 1/2: the slow one gets one of them, and takes 2 where 1.6 were perfect."""
    slow = replace(GENERATOR, name="c", generate=2.0)
    place = placement(GENERATOR, replace(GENERATOR, name="b"), slow)
    assert seconds(model_of(place, SHAPE, 1, 3))["generate"] == 2.0
    assert loss_of(place, SHAPE, 1) == pytest.approx(0.25)
    assert loss_of(place, SHAPE, 5) == pytest.approx(0.0)  # 20 samples: 8, 8, 4


def test_more_generators_than_samples_take_turns() -> None:
    """Five generators and four samples: the pool makes a micro-batch in 4/5 of a second on average."""
    place = placement(*(replace(GENERATOR, name=str(each)) for each in range(5)))
    assert seconds(model_of(place, SHAPE, 1, 3))["generate"] == 0.8
    assert loss_of(place, SHAPE, 1) == 0.0


def test_dedicated_scoring_is_by_one_process_a_micro_batch() -> None:
    place = replace(placement(), rewards=(replace(TRAINER, role="reward", score=0.5),) * 2)
    model = model_of(place, replace(SHAPE, dedicated=True), 1, 1)
    assert (seconds(model)["score"], model.servers) == (2.0, 2)


def test_a_deterministic_job_has_no_tag() -> None:
    assert "assist" not in seconds(model_of(placement(), replace(SHAPE, assisted=False), 1, 1))


@pytest.mark.parametrize("num", [1, 2, 3, 16])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_the_quickest_is_what_the_best_number_of_tag_takes(num: int, score: float) -> None:
    times = Times.exact(generate=4, assist=5, update=2, score=score, switch=0.5, commit=1)
    model = Model(times=times)
    found, tags = quickest(model, num)
    ends = [
        times.seconds(Run.of(Setup(model=model, micro_batches=num)).to_end(Static(count))) for count in range(num + 1)
    ]
    assert found == min(ends)
    assert ends[tags] == found


def test_the_ablation_by_hand() -> None:
    """g = 4, h = 4, t = 2 without TSP and 1 with it; B = 16."""
    rows = {row.schedule: row for row in ablation(placement(), SHAPE, 1, (1, 3))}
    assert rows["naive"].seconds == 16 * 4 + 16 * 2
    assert rows["+GAP"].seconds == 16 * 4 + 2
    assert rows["+TSP"].seconds == 16 * 4 + 1
    # 10 made by the generator, 6 by the trainer, and 16 updates: 40 and 24 + 16.
    assert rows["+TAG"].seconds == pytest.approx(41)
    assert rows["+TAG"].assisted == 6
    assert rows["+TAG"].ideal == 40
    assert rows["+TCSS 0.25"].seconds == pytest.approx(40, rel=0.01)
    assert rows["naive"].ideal is None
    assert rows["naive"].bubbles == {("trainer", "generation"): 64, ("generator", "update"): 32}


def test_bubbles_and_work_are_the_whole_step() -> None:
    for row in ablation(placement(commit=2.0), SHAPE, 1, (1, 3))[:4]:
        generated = (16 - row.assisted) * 4
        waits = sum(seconds for (worker, _), seconds in row.bubbles.items() if worker == "generator")
        assert generated + waits == pytest.approx(row.seconds), row.schedule


def test_colocated_by_hand() -> None:
    place = placement(commit=3.0)
    assert colocated("one", [TRAINER], place, SHAPE, 1).seconds == 64 * 1.5 + 3
    assert colocated("both", place.devices, place, SHAPE, 3).seconds == 32 * 1.25 + 3


def test_colocated_is_as_slow_as_its_slowest_device() -> None:
    slow = replace(GENERATOR, generate=2.0, score=0.5)
    place = placement(slow)
    assert colocated("both", place.devices, place, SHAPE, 3).seconds == 32 * (2.0 + 0.5 + 0.25)


def test_dedicated_scoring_is_beside_colocated_generation() -> None:
    place = replace(placement(), rewards=(replace(TRAINER, role="reward", score=2.0),))
    shape = replace(SHAPE, dedicated=True)
    assert colocated("both", place.devices, place, shape, 3).seconds == 128 + 32 * 0.25


def test_a_rollout_of_several_updates_is_several_global_steps() -> None:
    shape = Shape(prompts=16, samples=4, updates=2, width=3)
    rows = {row.schedule: row.seconds for row in ablation(placement(commit=2.0), shape, 1, (1, 3))}
    assert rows["naive"] == (16 * 4 + 16 * 2) / 2 + 2
    assert rows["+TSP"] == (16 * 4 + 1) / 2 + 2
    assert not any(name.startswith("+TCSS") for name in rows)
