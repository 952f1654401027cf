from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.rl.windows import (
    Window,
    check_window,
    draw_window,
    levels,
    progressive_window,
    select_timesteps,
    whole_window,
)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, int, int]:
    num_timesteps = draw(st.integers(2, 40))
    hi = draw(st.integers(1, num_timesteps - 1))
    lo = draw(st.integers(0, hi - 1))
    return num_timesteps, draw(st.integers(1, hi - lo)), lo, hi


@given(ranges(), st.integers())
def test_a_window_has_its_size_and_stays_in_its_range(of: tuple[int, int, int, int], key: int) -> None:
    num_timesteps, size, lo, hi = of
    window = draw_window(num_timesteps, size, lo, hi, "group", key)
    assert window.size == size
    assert lo <= window.start
    assert window.stop <= hi
    assert num_timesteps - 1 not in window.indexes


def test_start_is_uniform_with_both_ends() -> None:
    # flow_grpo's SD3 fast recipe: size 3, range (0, 5)
    counts = Counter(draw_window(10, 3, 0, 5, "group", at).start for at in range(3000))
    assert set(counts) == {0, 1, 2}
    assert all(850 < count < 1150 for count in counts.values())


def test_a_group_key_fixes_the_window() -> None:
    assert draw_window(10, 2, 0, 9, "group", 4) == draw_window(10, 2, 0, 9, "group", 4)


@pytest.mark.parametrize("size", [0, None])
def test_no_size_is_the_whole_trajectory_but_its_last_timestep(size: int | None) -> None:
    assert draw_window(10, size, 0, 0) == Window(0, 9)
    assert Window(0, 9).indexes == tuple(range(9))


def test_one_timestep_leaves_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        whole_window(1)


@pytest.mark.parametrize(("size", "lo", "hi"), [(3, 0, 2), (1, -1, 4), (2, 5, 6), (-1, 0, 4), (2, 0, 11), (3, 8, 11)])
def test_ranges_that_hold_no_window_are_refused(size: int, lo: int, hi: int) -> None:
    with pytest.raises(ValueError, match=rf"\[{lo}, {hi}\)"):
        draw_window(10, size, lo, hi)


@pytest.mark.parametrize("kernel", ["flow_sde", "cps"])
def test_the_last_timestep_is_refused(kernel: str) -> None:
    with pytest.raises(ValueError, match=f"last timestep 9, which {kernel} cannot train"):
        draw_window(10, 2, 0, 10, kernel=kernel)
    with pytest.raises(ValueError, match="last timestep 9"):
        check_window(10, Window(9, 10), kernel)


def test_dance_may_train_the_last_timestep() -> None:
    assert draw_window(10, 1, 9, 10, kernel="dance_sde") == Window(9, 10)


def test_ode_has_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="no log-prob"):
        draw_window(10, None, 0, 0, kernel="ode")


def test_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'flow_sde'"):
        check_window(10, Window(0, 1), "flow_sd")


def test_a_progressive_window_never_shrinks() -> None:
    # MixGRPO's geometry: 25 timesteps, size 4, 25 iterations a place, last 23
    windows = [progressive_window(25, 4, 0, 23, step, 25) for step in range(1000)]
    assert {window.size for window in windows} == {4}
    assert [windows[at].start for at in (0, 24, 25, 474, 475, 999)] == [0, 0, 1, 18, 19, 19]


def test_a_progressive_window_rolls_back_to_its_first_place() -> None:
    starts = [progressive_window(9, 3, 1, 6, step, 2, roll_back=True).start for step in range(14)]
    assert starts == [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3, 1, 1]


def test_progressive_window_refuses_bad_counts() -> None:
    with pytest.raises(ValueError, match="every=0"):
        progressive_window(25, 4, 0, 23, 0, 0)


def test_levels_are_zero_outside_the_window() -> None:
    assert levels(5, Window(1, 3), 0.8) == (0.0, 0.8, 0.8, 0.0, 0.0)


@pytest.mark.parametrize(("window", "level"), [(Window(3, 6), 0.8), (Window(0, 1), -0.1), (Window(0, 1), float("nan"))])
def test_levels_refuse_what_no_trajectory_can_do(window: Window, level: float) -> None:
    with pytest.raises(ValueError, match=r"outside|noise_level"):
        levels(5, window, level)


@given(st.integers(1, 30), st.floats(0.001, 1.0), st.sampled_from(["first", "random"]), st.integers())
def test_selection_is_an_ascending_subset(n: int, fraction: float, order: str, key: int) -> None:
    indexes = tuple(range(5, 5 + n))
    chosen = select_timesteps(indexes, fraction, "first" if order == "first" else "random", "sample", key)
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(indexes)
    assert len(chosen) == max(1, int(n * fraction))


def test_first_takes_the_head_and_random_differs_by_sample() -> None:
    # DanceGRPO: 15 of 16 timesteps are candidates, 0.6 of them are trained
    indexes = whole_window(16).indexes
    assert select_timesteps(indexes, 0.6) == tuple(range(9))
    drawn = {select_timesteps(indexes, 0.6, "random", sample) for sample in range(20)}
    assert len(drawn) > 10


@pytest.mark.parametrize(
    ("indexes", "fraction", "order"),
    [((), 1.0, "first"), ((1,), 0.0, "first"), ((1,), 1.1, "first"), ((1,), 1.0, "fist")],
)
def test_selections_of_nothing_are_refused(indexes: tuple[int, ...], fraction: float, order: str) -> None:
    with pytest.raises(ValueError, match=r"no timesteps|fraction|did you mean 'first'"):
        select_timesteps(indexes, fraction, order)  # type: ignore[arg-type]
