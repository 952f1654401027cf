"""What is advised, and that it is said when colocated wins and when a rollout has too few micro-batches."""

from dataclasses import replace

import pytest

from broker.planning.devices import TimesMissing
from broker.planning.plan import plan
from broker.planning.shape import Shape
from tests.planning.support import GENERATOR, SHAPE, TRAINER, measured


def test_equal_devices_scale_perfectly_together_and_that_is_said() -> None:
    made = plan(SHAPE, measured())
    assert made.winner == "colocated"
    assert "Colocated wins if it scales" in made.verdict
    assert "less than 97.6 %" in made.verdict  # 40 s of 41 s
    assert made.split is not None
    assert made.split.seconds == pytest.approx(41)
    assert made.strategy == "planned"


def test_unlike_devices_are_better_split() -> None:
    made = plan(SHAPE, measured(replace(GENERATOR, generate=3.0, update={1: 2.0, 3: 1.0}), TRAINER))
    assert made.winner == "split"
    assert "Split wins" in made.verdict


def test_one_device_is_colocated() -> None:
    made = plan(SHAPE, measured(TRAINER))
    assert (made.winner, made.split, made.model) == ("colocated", None, None)
    assert [row.schedule for row in made.rows] == ["colocated", "colocated with TSP"]
    assert made.rows[1].seconds == 64 * 1.25


def test_a_trainer_that_is_faster_alone_says_so() -> None:
    slow = replace(GENERATOR, generate=100.0, update={1: 50.0, 3: 25.0})
    made = plan(Shape(prompts=2, samples=4, width=3), measured(slow, TRAINER))
    assert made.winner == "colocated"
    assert "schedule.generators = []" in made.verdict


def test_the_device_that_trains_best_is_to_train() -> None:
    weak = replace(TRAINER, generate=1.0, update={1: 8.0, 3: 4.0})
    strong = replace(GENERATOR, generate=1.0, update={1: 0.2, 3: 0.1})
    made = plan(SHAPE, measured(strong, weak))
    assert made.split is not None
    assert made.split.placement.trainer.name == strong.name
    forced = plan(SHAPE, measured(strong, weak), trainer=weak.name)
    assert forced.split is not None
    assert forced.split.placement.trainer.name == weak.name


def test_who_was_never_seen_training_is_not_to_train() -> None:
    unseen = replace(GENERATOR, generate=0.5, update={})
    made = plan(SHAPE, measured(unseen, TRAINER))
    assert {each.placement.trainer.name for each in made.tried} == {TRAINER.name}


def test_settings_stay_where_nothing_is_gained() -> None:
    made = plan(replace(SHAPE, prompts=256, groups=2), measured())
    assert made.split is not None
    assert made.split.groups == 2


def test_smaller_micro_batches_hide_bubbles() -> None:
    made = plan(replace(SHAPE, groups=8), measured())
    assert made.split is not None
    assert (made.split.groups, made.shape.micro_batches(made.split.groups)) == (1, 16)


def test_larger_micro_batches_fit_unlike_speeds() -> None:
    three = (GENERATOR, replace(GENERATOR, name="b"), replace(GENERATOR, name="c", generate=2.0))
    made = plan(Shape(prompts=400, samples=4, width=3), measured(*three, TRAINER), trainer=TRAINER.name)
    assert made.split is not None
    assert made.split.groups % 5 == 0
    assert made.quantisation_loss == pytest.approx(0.0)


def test_few_micro_batches_are_warned_about() -> None:
    (warning,) = plan(replace(SHAPE, prompts=4), measured()).warnings
    assert "4 micro-batches a rollout are too few to hide bubbles" in warning
    assert "data.prompts_per_rollout = 8" in warning
    assert "schedule.staleness = 0.25" in warning
    assert not plan(replace(SHAPE, prompts=64), measured()).warnings


def test_samples_that_do_not_fit_the_generators_are_warned_about() -> None:
    three = (GENERATOR, replace(GENERATOR, name="b"), replace(GENERATOR, name="c", generate=2.0))
    quick = replace(TRAINER, generate=10.0, update={1: 0.1, 3: 0.1})
    (warning,) = plan(Shape(prompts=61, samples=4, width=3), measured(*three, quick), trainer=quick.name).warnings
    assert "25.0 % of generation is lost because samples are whole: 4 samples on 3 generators" in warning


def test_a_missing_sequential_time_is_named() -> None:
    wide = [replace(device, update={3: 0.25}) for device in (GENERATOR, TRAINER)]
    assert "without TSP" in plan(replace(SHAPE, prompts=64), measured(*wide)).warnings[0]


def test_tag_that_brings_nothing_is_not_advised() -> None:
    slow = replace(TRAINER, generate=50.0)
    assert plan(SHAPE, measured(GENERATOR, slow), trainer=slow.name).strategy == "never"
    assert plan(replace(SHAPE, assisted=False), measured()).strategy == "never"


def test_dedicated_scoring_needs_reward_processes() -> None:
    with pytest.raises(TimesMissing, match="dedicated"):
        plan(replace(SHAPE, dedicated=True), measured())


def test_what_was_tried_is_told_the_fastest_first() -> None:
    tried = plan(SHAPE, measured()).tried
    assert [each.seconds for each in tried] == sorted(each.seconds for each in tried)
    assert len({(each.placement.trainer.name, each.groups, each.width) for each in tried}) == len(tried) == 2 * 5 * 2
