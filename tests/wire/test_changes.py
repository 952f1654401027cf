"""Changed elements: exact to the bit, smaller than the whole or not sent at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.wire.changes import GAPS, VALUES, WHOLE, apply_changes, changes_between
from digend.wire.tensors import DTYPES, Array, BadTensor, digest_of, from_numpy, manifest_of


def _bits(dtype: str, num: int, seed: int) -> Array:
    """Any bit patterns: NaN of every payload, both zeros."""
    data = np.random.default_rng(seed).integers(0, 256, num * DTYPES[dtype], np.uint8)
    return Array(dtype, (num,), data.data if num else b"")


def _with(array: Array, places: list[int], seed: int) -> Array:
    width = DTYPES[array.dtype]
    data = np.frombuffer(array.data, np.uint8).copy().reshape(-1, width)
    data[places] ^= np.random.default_rng(seed).integers(1, 256, (len(places), width), np.uint8)
    return Array(array.dtype, array.shape, data.reshape(-1).data)


def _same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return list(one) == list(other) and digest_of(manifest_of(one)) == digest_of(manifest_of(other))


@given(st.sampled_from(sorted(set(DTYPES) - {"bool"})), st.integers(0, 300), st.data())
def test_any_changes_give_the_same_bits(dtype: str, num: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, num - 1), max_size=num, unique=True) if num else st.just([]))
    before = {"a": _bits(dtype, num, 1), "same": _bits(dtype, 7, 2), "scalar": from_numpy(np.array(2.5))}
    after = {**before, "a": _with(before["a"], places, 3) if num else before["a"]}
    changes = changes_between(before, after)
    if changes is not None:
        assert sum(each.num_bytes for each in changes.values()) < sum(each.num_bytes for each in after.values())
        assert _same(apply_changes(before, changes), after)


@pytest.mark.parametrize("places", [[0], [65_535], [65_536], [0, 65_537, 299_999], [299_999], [10, 65_547, 131_084]])
def test_changes_that_lie_far_apart(places: list[int]) -> None:
    before = {"w": _bits("bfloat16", 300_000, 1)}
    after = {"w": _with(before["w"], places, 2)}
    changes = changes_between(before, after)
    assert changes is not None
    assert changes[GAPS + "w"].num_bytes <= 2 * (len(places) + 5)
    assert _same(apply_changes(before, changes), after)


def test_what_changed_throughout_travels_whole_and_what_did_not_stays_away() -> None:
    before = {"all": _bits("float32", 5000, 1), "none": _bits("float32", 5000, 2), "few": _bits("float32", 5000, 3)}
    after = {**before, "all": _bits("float32", 5000, 4), "few": _with(before["few"], [17], 5)}
    changes = changes_between(before, after)
    assert changes is not None
    assert sorted(changes) == [GAPS + "few", VALUES + "few", WHOLE + "all"]
    applied = apply_changes(before, changes)
    assert _same(applied, after)
    assert applied["none"] is before["none"], "what did not change is not copied"


def test_nothing_is_gained_is_none() -> None:
    before, after = {"w": _bits("float32", 5000, 1)}, {"w": _bits("float32", 5000, 2)}
    assert changes_between(before, after) is None
    assert changes_between({}, after) is None
    assert changes_between({"w": _bits("float32", 4999, 1)}, after) is None


def test_changes_for_other_tensors_are_refused() -> None:
    before = {"w": _bits("bfloat16", 5000, 1)}
    changes = changes_between(before, {"w": _with(before["w"], [4999], 2)})
    assert changes is not None
    for other in ({"v": before["w"]}, {"w": _bits("bfloat16", 10, 1)}, {"w": _bits("float32", 5000, 1)}):
        with pytest.raises(BadTensor):
            apply_changes(other, changes)
    with pytest.raises(BadTensor):
        apply_changes(before, {VALUES + "w": changes[VALUES + "w"]})


def test_one_percent_of_bfloat16_takes_a_fortieth() -> None:
    num = 1_000_000
    places = sorted(np.random.default_rng(0).choice(num, num // 100, replace=False).tolist())
    before = {"w": _bits("bfloat16", num, 1)}
    changes = changes_between(before, {"w": _with(before["w"], places, 2)})
    assert changes is not None
    assert sum(each.num_bytes for each in changes.values()) <= 2 * num / 40
