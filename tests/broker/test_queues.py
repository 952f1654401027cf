"""SQ and UQ: older policy version first, then global step, then arrival."""

from hypothesis import given
from hypothesis import strategies as st

from broker.queues import Queue


class Item:
    """Equal to nothing but itself, as micro-batches are."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key


KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30)


def filled(keys: list[tuple[int, int]]) -> tuple[Queue[Item], list[Item]]:
    queue, items = Queue[Item](), [Item(key) for key in keys]
    for now, item in enumerate(items):
        queue.push(item, item.key[0], item.key[1], now)
    return queue, items


@given(KEYS)
def test_served_by_version_then_step_then_arrival(keys: list[tuple[int, int]]) -> None:
    queue, items = filled(keys)
    expected = sorted(items, key=lambda item: (item.key, items.index(item)))
    assert [item for item, _ in queue.waiting()] == expected
    assert [since for _, since in queue.waiting()] == [items.index(item) for item in expected]
    assert len(queue) == len(items)
    served: list[Item] = []
    while queue:
        assert queue.peek() is expected[len(served)]
        served.append(queue.pop())
    assert served == expected
    assert queue.peek() is None


@given(KEYS, st.data())
def test_removal_keeps_the_order_of_the_others(keys: list[tuple[int, int]], data: st.DataObject) -> None:
    queue, items = filled(keys)
    gone = [item for item in items if data.draw(st.booleans())]
    for item in gone:
        queue.remove(item)
        queue.remove(item)
    expected = sorted((item for item in items if item not in gone), key=lambda item: (item.key, items.index(item)))
    assert [queue.pop() for _ in expected] == expected
    assert not queue


def test_a_place_replaces_the_arrival() -> None:
    queue = Queue[str]()
    for name, place in (("third", 2), ("first", 0), ("second", 1)):
        queue.push(name, 0, 0, 0, place)
    assert [queue.pop() for _ in range(3)] == ["first", "second", "third"]
    queue.push("x", 0, 0, 0)
    queue.clear()
    assert not queue
