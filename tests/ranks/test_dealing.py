"""Pairs are dealt evenly over ranks, each once, in equally many passes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.engines.forwards import Forward, Pair
from digend.engines.ranks.dealing import deal


def planned(counts: list[int]) -> list[Forward]:
    """A pass a noise level, of so many pairs."""
    return [
        Forward(float(level), tuple(Pair(item, level, level) for item in range(count)))
        for level, count in enumerate(counts)
    ]


@given(st.lists(st.integers(1, 23), min_size=1, max_size=3), st.integers(1, 7), st.integers(1, 5))
def test_every_pair_once_and_the_same_number_of_passes(counts: list[int], size: int, largest: int) -> None:
    ranks = [deal(planned(counts), rank, size, largest) for rank in range(size)]
    levels = [[forward.level for forward in forwards] for forwards in ranks]
    assert all(each == levels[0] for each in levels)
    real = [[forward for forward in forwards if not forward.padding] for forwards in ranks]
    dealt = Counter(pair for forwards in real for forward in forwards for pair in forward.pairs)
    assert dealt == Counter(pair for forward in planned(counts) for pair in forward.pairs)
    assert max(len(forward.pairs) for forwards in ranks for forward in forwards) <= largest
    for level in range(len(counts)):
        shares = [sum(len(each.pairs) for each in forwards if each.level == level) for forwards in real]
        assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 4))
def test_ranks_run_the_same_expert_in_the_same_pass(counts: list[int], size: int, largest: int) -> None:
    def expert(pair: Pair) -> str:
        return "low" if (pair.item + pair.index) % 3 else "high"

    ranks = [deal(planned(counts), rank, size, largest, expert) for rank in range(size)]
    assert len({tuple((forward.level, forward.expert) for forward in forwards) for forwards in ranks}) == 1
    passes = [forward for forwards in ranks for forward in forwards]
    assert all(expert(pair) == forward.expert for forward in passes for pair in forward.pairs)
    dealt = Counter(pair for forward in passes if not forward.padding for pair in forward.pairs)
    assert dealt == Counter(pair for forward in planned(counts) for pair in forward.pairs)


def test_a_rank_without_pairs_pads() -> None:
    (alone,) = deal(planned([1]), 0, 2, 4)
    (other,) = deal(planned([1]), 1, 2, 4)
    assert sorted([alone.padding, other.padding]) == [False, True]
    assert alone.pairs == other.pairs


@pytest.mark.parametrize(("num_pairs", "largest", "sizes"), [(10, 4, [3, 2]), (8, 4, [4]), (9, 2, [2, 2, 1])])
def test_passes_of_a_rank_are_of_equal_size(num_pairs: int, largest: int, sizes: list[int]) -> None:
    passes = deal(planned([num_pairs]), 1, 2, largest)
    assert [len(each.pairs) for each in passes] == sizes
