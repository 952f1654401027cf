"""Arrays: sizes that cannot be wrong, every dtype, odd shapes, manifests."""

from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from digend.wire.pulls import Manifest
from digend.wire.tensors import (
    DIGEST_BYTES,
    DTYPES,
    Array,
    BadTensor,
    bits,
    digest_of,
    from_numpy,
    manifest_of,
    num_bytes_of,
    pack_manifest,
    piece_bytes,
    to_numpy,
    unpack_manifest,
)

NUMPY_DTYPES = sorted(set(DTYPES) - {"bfloat16"})


@given(st.data())
def test_numpy_round_trip_of_any_shape(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(NUMPY_DTYPES))
    values = data.draw(hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, min_side=0)))
    back = to_numpy(from_numpy(values))
    assert back.dtype == values.dtype
    assert back.shape == values.shape
    assert back.tobytes() == values.tobytes()


def test_zero_dim_and_empty_keep_their_shape() -> None:
    assert from_numpy(np.array(3.5, np.float32)).shape == ()
    assert from_numpy(np.zeros((0, 3), np.int64)).shape == (0, 3)
    assert to_numpy(Array("float32", (2, 0), b"")).shape == (2, 0)


def test_strided_values_travel_as_they_read() -> None:
    values = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::-3].T
    assert not values.flags.c_contiguous
    assert np.array_equal(to_numpy(from_numpy(values)), values)


def test_contiguous_values_are_shared() -> None:
    values = np.zeros(4, np.float32)
    array = from_numpy(values)
    values[2] = 7.0
    assert to_numpy(array)[2] == 7.0


def test_big_endian_values_are_swapped() -> None:
    array = from_numpy(np.array([1, 2], dtype=">i4"))
    assert bytes(array.data) == b"\x01\0\0\0\x02\0\0\0"


def test_bfloat16_travels_as_bits() -> None:
    array = Array("bfloat16", (2,), b"\x80\x3f\x00\x40")  # 1.0 and 2.0
    assert bits(array).tolist() == [0x3F80, 0x4000]
    with pytest.raises(BadTensor, match="uint16"):
        to_numpy(array)


@pytest.mark.parametrize("dtype", ["complex64", "uint16", "object", "float8_e4m3fn"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(BadTensor, match=dtype):
        num_bytes_of(dtype, (1,))


def test_numpy_dtype_that_does_not_travel_is_named() -> None:
    with pytest.raises(BadTensor, match="complex128"):
        from_numpy(np.zeros(2, np.complex128))


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 23), ((2, 3), 25), ((), 0), ((0,), 4)])
def test_bytes_must_fit_the_shape(shape: tuple[int, ...], size: int) -> None:
    with pytest.raises(BadTensor, match="bytes"):
        Array("float32", shape, bytes(size))


@pytest.mark.parametrize("shape", [(-1,), (2, -2), (True,), (1.0,), (1,) * 17])
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadTensor, match="shape"):
        Array("uint8", shape, b"")


def test_a_view_of_wider_items_is_refused() -> None:
    with pytest.raises(BadTensor, match="memoryview"):
        Array("float32", (4,), np.zeros(4, np.float32).data)


def test_a_huge_claim_takes_no_memory() -> None:
    with pytest.raises(BadTensor):
        Array("float64", (2**40, 2**40), b"")


def _tensors() -> dict[str, Array]:
    return {"x": from_numpy(np.arange(6.0).reshape(2, 3)), "empty": Array("bfloat16", (0, 4), b"")}


def test_manifest_round_trip_and_digest() -> None:
    manifest = manifest_of(_tensors())
    assert unpack_manifest(pack_manifest(manifest)) == manifest
    assert digest_of(manifest) == digest_of(manifest_of(_tensors()))
    changed = _tensors() | {"x": from_numpy(np.arange(1.0, 7.0).reshape(2, 3))}
    assert digest_of(manifest_of(changed)) != digest_of(manifest)
    assert digest_of(Manifest(tensors=manifest.tensors[::-1])) != digest_of(manifest)


@pytest.mark.parametrize(
    "rows",
    [
        5,
        [[1, 2, 3]],
        [["x", "float32", [2], 9, "d"]],
        [["x", "float32", [-2], -8, "d"]],
        [["x", "float32", ["2"], 8, "d"]],
        [["x", "float32", [2.0], 8, "d"]],
        [["x", "float33", [2], 8, "d"]],
        [["x", "uint8", [2], 2, "d"], ["x", "uint8", [2], 2, "d"]],
    ],
)
def test_a_manifest_that_cannot_be_is_refused(rows: object) -> None:
    with pytest.raises(BadTensor):
        unpack_manifest(msgpack.packb(rows))


@given(st.binary(max_size=200))
def test_garbage_is_no_manifest(data: bytes) -> None:
    try:
        manifest = unpack_manifest(data)
    except BadTensor:
        return
    assert pack_manifest(manifest)


@pytest.mark.parametrize(
    ("blob_bytes", "size"), [(0, 32 * 1024), (640 * 1024, 40 * 1024), (4 * 1024**2, 256 * 1024), (2**36, 256 * 1024)]
)
def test_pieces_grow_with_the_blob(blob_bytes: int, size: int) -> None:
    assert piece_bytes(blob_bytes) == size


def test_digests_are_counted_by_the_whole_blobs_size() -> None:
    manifest = manifest_of(
        {"a": Array("uint8", (600_000,), bytes(600_000)), "b": Array("uint8", (40_000,), bytes(40_000))}
    )
    assert [len(spec.digests) // DIGEST_BYTES for spec in manifest.tensors] == [15, 1]
    assert unpack_manifest(pack_manifest(manifest)) == manifest
    short = replace(manifest.tensors[0], digests=manifest.tensors[0].digests[:-DIGEST_BYTES])
    with pytest.raises(BadTensor, match="'a': 224 bytes of digests"):
        unpack_manifest(pack_manifest(replace(manifest, tensors=(short, *manifest.tensors[1:]))))
