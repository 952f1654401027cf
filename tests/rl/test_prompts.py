from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digend.rl.prompts import prompts_of_step

SIZES = st.integers(1, 30).flatmap(lambda num: st.tuples(st.just(num), st.integers(1, num)))


@given(SIZES, st.integers(0, 200), st.integers(0, 3))
def test_no_prompt_twice_in_a_step(sizes: tuple[int, int], step: int, seed: int) -> None:
    num_prompts, prompts_per_step = sizes
    prompts = prompts_of_step(num_prompts, prompts_per_step, step, seed)
    assert len(set(prompts)) == len(prompts) == prompts_per_step
    assert set(prompts) <= set(range(num_prompts))


@settings(max_examples=50)
@given(SIZES, st.integers(0, 3))
def test_each_epoch_holds_every_prompt_once(sizes: tuple[int, int], seed: int) -> None:
    num_prompts, prompts_per_step = sizes
    steps = range(4 * num_prompts)
    stream = list(chain.from_iterable(prompts_of_step(num_prompts, prompts_per_step, k, seed) for k in steps))
    for at in range(0, len(stream) - num_prompts + 1, num_prompts):
        assert sorted(stream[at : at + num_prompts]) == list(range(num_prompts))


def test_a_step_needs_no_earlier_one() -> None:
    forward = [prompts_of_step(10, 4, step, 5) for step in range(20)]
    backward = [prompts_of_step(10, 4, step, 5) for step in reversed(range(20))]
    assert forward == backward[::-1]


def test_values_are_pinned() -> None:
    assert [prompts_of_step(5, 3, step, 0) for step in range(4)] == [
        (2, 1, 0),
        (4, 3, 2),
        (4, 3, 1),
        (0, 4, 1),
    ]


def test_epochs_and_seeds_differ() -> None:
    assert prompts_of_step(50, 50, 0, 0) != prompts_of_step(50, 50, 1, 0)
    assert prompts_of_step(50, 50, 0, 0) != prompts_of_step(50, 50, 0, 1)


def test_a_late_step_of_a_small_set_is_cheap() -> None:
    assert len(set(prompts_of_step(47, 31, 10**9, 0))) == 31


def test_more_prompts_per_step_than_prompts_names_both() -> None:
    with pytest.raises(ValueError, match=r"prompts_per_step \(5\) exceeds num_prompts \(4\)"):
        prompts_of_step(4, 5, 0, 0)


@pytest.mark.parametrize(("prompts_per_step", "step"), [(0, 0), (1, -1)])
def test_counts_out_of_range_are_refused(prompts_per_step: int, step: int) -> None:
    with pytest.raises(ValueError, match=f"prompts_per_step={prompts_per_step}, step={step}"):
        prompts_of_step(4, prompts_per_step, step, 0)
