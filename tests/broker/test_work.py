"""GAP's arithmetic: how samples are shared over workers."""

from math import ceil, floor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.work import quantisation_loss, quotas, split, whole

NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


@st.composite
def pools(draw: Any) -> dict[str, float]:
    """Relative speeds that sum to 1, as `estimates.speeds` gives them."""
    raw = {name: draw(st.floats(0.01, 100)) for name in draw(NAMES)}
    total = sum(raw.values())
    return {name: speed / total for name, speed in raw.items()}


SIZES = st.lists(st.integers(1, 24), min_size=1, max_size=6)


@given(st.integers(0, 300), pools())
def test_quotas_are_proportional_within_one_and_sum_up(num: int, pool: dict[str, float]) -> None:
    counts = quotas(num, pool)
    assert sum(counts.values()) == num
    for name, speed in pool.items():
        assert floor(num * speed - 1e-6) <= counts[name] <= ceil(num * speed + 1e-6)


@given(st.sampled_from(["gap", "naive", "batch"]), SIZES, pools())
def test_shares_hold_every_sample_once(partition: str, sizes: list[int], pool: dict[str, float]) -> None:
    shares = split(partition, sizes, pool)
    dealt = [(group, sample) for share in shares.values() for group, members in share for sample in members]
    assert sorted(dealt) == [(group, sample) for group, size in enumerate(sizes) for sample in range(size)]
    assert all(share for share in shares.values()), "a worker without samples has no share"
    assert set(shares) <= set(pool)


@given(SIZES, pools())
def test_batch_never_cuts_a_group(sizes: list[int], pool: dict[str, float]) -> None:
    for share in split("batch", sizes, pool).values():
        for group, members in share:
            assert members == tuple(range(sizes[group]))


@given(SIZES, pools())
def test_equal_inputs_give_equal_shares(sizes: list[int], pool: dict[str, float]) -> None:
    assert split("gap", sizes, pool) == split("gap", sizes, dict(pool))
    assert split("gap", sizes, {"only": 1.0}) == {"only": whole(sizes)}


def test_ties_go_to_the_earlier_worker() -> None:
    assert quotas(4, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 2, "b": 1, "c": 1}
    assert quotas(1, {"b": 0.5, "a": 0.5}) == {"b": 1, "a": 0}


def test_quantisation_of_few_samples_on_unlike_workers() -> None:
    assert quotas(4, {"a": 0.4, "b": 0.4, "c": 0.2}) == {"a": 2, "b": 1, "c": 1}
    assert quantisation_loss(4, {"a": 0.4, "b": 0.4, "c": 0.2}) == 0.25
    assert quantisation_loss(20, {"a": 0.4, "b": 0.4, "c": 0.2}) < 1e-12
    assert quantisation_loss(1, {"a": 0.5, "b": 0.5}) == 1.0


def test_batch_balances_by_speed() -> None:
    shares = split("batch", [4, 4, 4], {"fast": 2 / 3, "slow": 1 / 3})
    assert [group for group, _ in shares["fast"]] == [0, 1]
    assert [group for group, _ in shares["slow"]] == [2]
