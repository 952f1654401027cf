"""Draws are functions of their key alone. The pinned values are a format: changing one breaks resume."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.rl.seeds import choice_without_replacement, permutation, seed_of, seeds_of, uniform_int

KEYS = st.lists(st.integers() | st.text(), max_size=4)


def test_values_are_pinned() -> None:
    assert seed_of() == 8977906979639277393
    assert seed_of("noise", 7, 0, "prompt-3", 2) == 7078756400729379151
    assert [uniform_int(0, 9, "window", at) for at in range(8)] == [7, 7, 7, 7, 9, 5, 5, 9]
    assert permutation(8, "prompts", 1) == (7, 2, 0, 4, 5, 6, 1, 3)


@given(KEYS, KEYS)
def test_distinct_keys_are_distinct_streams(one: list[int | str], other: list[int | str]) -> None:
    assert (seed_of(*one) == seed_of(*other)) == (one == other)


def test_encoding_keeps_borders_and_types_apart() -> None:
    keys: list[tuple[int | str, ...]] = [
        ("a", "b"),
        ("ab",),
        ("a", "b", ""),
        (1,),
        ("1",),
        (-1,),
        (1, 1),
        (11,),
    ]
    assert len({seed_of(*key) for key in keys}) == len(keys)


@given(KEYS)
def test_seed_fits_63_bits(key: list[int | str]) -> None:
    assert 0 <= seed_of(*key) < 2**63


@given(KEYS, KEYS)
def test_seeds_of_are_the_seeds_of_each_key(key: list[int | str], last: list[int | str]) -> None:
    assert seeds_of(last, *key) == tuple(seed_of(*key, each) for each in last)


@pytest.mark.parametrize("bad", [1.0, None, True, b"a", (1,)])
def test_keys_hold_ints_and_strings_only(bad: object) -> None:
    with pytest.raises(TypeError, match="ints and strings"):
        seed_of("a", bad)  # type: ignore[arg-type]


@given(st.integers(), st.integers(0, 2**64 - 1), KEYS)
def test_uniform_int_stays_in_its_range(lo: int, width: int, key: list[int | str]) -> None:
    assert lo <= uniform_int(lo, lo + width, *key) <= lo + width


def test_uniform_int_reaches_both_ends_evenly() -> None:
    counts = Counter(uniform_int(-2, 4, "even", at) for at in range(7000))
    assert set(counts) == set(range(-2, 5))
    assert all(850 < count < 1150 for count in counts.values())


def test_uniform_int_has_no_modulo_bias() -> None:
    # A bare remainder of 64 bits would fall in the first third of this range half of the time.
    third = 2**62
    low = sum(uniform_int(0, 3 * third - 1, "bias", at) < third for at in range(3000))
    assert 850 < low < 1150


@pytest.mark.parametrize(("lo", "hi"), [(1, 0), (0, 2**64)])
def test_uniform_int_refuses_ranges_it_cannot_draw(lo: int, hi: int) -> None:
    with pytest.raises(ValueError, match=f"lo={lo}, hi={hi}"):
        uniform_int(lo, hi)


@given(st.integers(0, 60), KEYS)
def test_permutation_holds_each_index_once(n: int, key: list[int | str]) -> None:
    assert sorted(permutation(n, *key)) == list(range(n))


@given(st.integers(0, 40), st.data())
def test_choice_is_the_head_of_the_permutation(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert choice_without_replacement(n, k, "key") == permutation(n, "key")[:k]


def test_permutations_are_uniform() -> None:
    counts = Counter(permutation(3, "uniform", at) for at in range(6000))
    assert len(counts) == 6
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize("k", [-1, 4])
def test_choice_refuses_more_than_there_are(k: int) -> None:
    with pytest.raises(ValueError, match=f"k={k} of n=3"):
        choice_without_replacement(3, k)


def test_choice_from_a_huge_range_costs_what_it_draws() -> None:
    chosen = choice_without_replacement(2**40, 1000, "huge")
    assert len(set(chosen)) == 1000
