"""Tensors laid end to end: any cut gives exactly the bytes between."""

from hypothesis import given
from hypothesis import strategies as st

from digend.net.layout import Layout

sizes = st.lists(st.integers(0, 9), max_size=8)


@given(sizes, st.integers(0, 90), st.integers(0, 90))
def test_parts_are_the_bytes_asked_for(sizes: list[int], offset: int, size: int) -> None:
    tensors = {str(number): bytes([number]) * each for number, each in enumerate(sizes)}
    whole = b"".join(tensors.values())
    layout = Layout({name: len(data) for name, data in tensors.items()})
    parts = list(layout.parts(offset, size))
    assert layout.num_bytes == len(whole)
    assert all(begin < end for _, begin, end in parts)
    assert b"".join(tensors[name][begin:end] for name, begin, end in parts) == whole[offset : offset + size]
    assert [offset for _, offset in layout.starts()] == [sum(sizes[:number]) for number in range(len(sizes))]
