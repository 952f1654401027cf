"""Every (sample, timestep) pair is in exactly one forward pass, whatever the batch, the width and the windows."""

from hypothesis import given
from hypothesis import strategies as st

from digend.engines.forwards import plan_forwards
from digend.wire.refs import BlobRef
from digend.wire.tasks import UpdateItem

T = 6
BLOB = BlobRef(owner="w", instance="i", id="b", num_bytes=0, digest="d")


def item(timesteps: tuple[int, ...], level: float = 0.7) -> UpdateItem:
    return UpdateItem(
        prompt="p",
        index=0,
        advantage=1.0,
        timesteps=timesteps,
        levels=tuple(level for _ in range(T)),
        trajectory=BLOB,
        condition=BLOB,
    )


timesteps_lists = st.lists(st.integers(0, T - 2), max_size=T - 1, unique=True).map(lambda each: tuple(sorted(each)))
items_lists = st.lists(st.builds(item, timesteps_lists, st.sampled_from([0.3, 0.7])), max_size=7)


@given(items_lists, st.integers(1, 5), st.integers(0, 4))
def test_each_pair_once(items: list[UpdateItem], update_batch: int, width: int) -> None:
    forwards = plan_forwards(items, update_batch, width)
    pairs = [(pair.item, pair.index) for forward in forwards for pair in forward.pairs]
    assert sorted(pairs) == [(row, index) for row, each in enumerate(items) for index in each.timesteps]
    for forward in forwards:
        assert forward.pairs
        assert len({pair.item for pair in forward.pairs}) <= update_batch
        assert {items[pair.item].levels[pair.index] for pair in forward.pairs} == {forward.level}
        for pair in forward.pairs:
            assert items[pair.item].timesteps[pair.position] == pair.index
            together = [other for other in forward.pairs if other.item == pair.item]
            assert len(together) <= (width or T)


def test_width_one_is_one_timestep_after_another() -> None:
    forwards = plan_forwards([item((0, 1)), item((2, 3)), item((1,))], 2, 1)
    assert [[(pair.item, pair.index) for pair in forward.pairs] for forward in forwards] == [
        [(0, 0), (1, 2)],
        [(0, 1), (1, 3)],
        [(2, 1)],
    ]


def test_width_zero_is_all_timesteps() -> None:
    forwards = plan_forwards([item((0, 1, 2)), item((2, 3))], 8, 0)
    assert [len(forward.pairs) for forward in forwards] == [5]
