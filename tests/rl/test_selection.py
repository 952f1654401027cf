import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.rl.selection import select_best_of_n, z_count

ADVANTAGES = st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=24)


def test_best_and_worst_halves() -> None:
    advantages = (0.1, -1.0, 2.0, -0.2, 0.5, -2.0)
    assert select_best_of_n(advantages, 4) == (1, 2, 4, 5)
    assert select_best_of_n(advantages, 3) == (2, 4, 5)
    assert select_best_of_n(advantages, 1) == (2,)


def test_ties_go_to_the_lower_index() -> None:
    assert select_best_of_n((0.0,) * 6, 3) == (0, 1, 2)
    assert select_best_of_n((1.0, 0.0, 1.0, 0.0, 1.0, 0.0), 3) == (0, 1, 2)


def test_masked_samples_are_never_selected() -> None:
    assert select_best_of_n((None, 1.0, None, -1.0), None) == (1, 3)
    assert select_best_of_n((None, 1.0, None, -1.0), 3) == (1, 3)
    assert select_best_of_n((None, None), 1) == ()


@given(ADVANTAGES, st.data())
def test_halves_hold_the_extremes(advantages: list[float | None], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(advantages)))
    chosen = select_best_of_n(advantages, n)
    unmasked = sorted(a for a in advantages if a is not None)
    assert list(chosen) == sorted(set(chosen))
    if len(unmasked) <= n:
        assert chosen == select_best_of_n(advantages, None)
        return
    kept = sorted(a for at in chosen if (a := advantages[at]) is not None)
    assert kept == unmasked[: n // 2] + unmasked[len(unmasked) - (n + 1) // 2 :]


@pytest.mark.parametrize("n", [0, -1, 4])
def test_impossible_n_names_both_sizes(n: int) -> None:
    with pytest.raises(ValueError, match=rf"group size \(3\), got n={n}"):
        select_best_of_n((1.0, 2.0, 3.0), n)


def test_z_counts_the_pairs_of_selected_samples() -> None:
    timesteps = {("a", 0): (0, 1, 2), ("a", 1): (1,), ("b", 0): (0, 4)}
    assert z_count([("a", 0), ("b", 0)], timesteps) == 5
    assert z_count([], timesteps) == 0


@pytest.mark.parametrize("selection", [["a", "a"], ["b"], ["c"]])
def test_z_refuses_what_it_cannot_count(selection: list[str]) -> None:
    with pytest.raises(ValueError, match="selected twice or has no timesteps"):
        z_count(selection, {"a": (1,), "b": ()})
