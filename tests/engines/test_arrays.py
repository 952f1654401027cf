"""torch tensors to wire arrays and back, bit for bit and without shared memory."""

import pytest
import torch

from digend.engines.arrays import dtype_name, to_array, to_tensor, torch_dtype
from digend.wire.tensors import DTYPES, BadTensor


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_every_dtype_and_shape_comes_back(name: str, shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(0)
    tensor = torch.randint(0, 100, shape, generator=rng).to(torch_dtype(name))
    array = to_array(tensor)
    assert (array.dtype, array.shape) == (name, shape)
    back = to_tensor(array)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_bfloat16_keeps_its_bits() -> None:
    tensor = torch.tensor([1.0, -3.14159, float("inf"), 1e-40], dtype=torch.bfloat16)
    assert torch.equal(to_tensor(to_array(tensor)).view(torch.int16), tensor.view(torch.int16))


def test_strided_and_differentiable_tensors_travel() -> None:
    tensor = torch.arange(24.0).reshape(4, 6).t()[::2].requires_grad_()
    assert torch.equal(to_tensor(to_array(tensor)), tensor)


def test_neither_side_shares_memory() -> None:
    tensor = torch.ones(3)
    array = to_array(tensor)
    tensor.zero_()
    back = to_tensor(array)
    assert back.tolist() == [1, 1, 1]
    back.zero_()
    assert to_tensor(array).tolist() == [1, 1, 1]


def test_tensors_are_aligned_whatever_the_bytes_are() -> None:
    assert all(to_tensor(to_array(torch.ones(n))).data_ptr() % 64 == 0 for n in range(1, 40))


def test_a_dtype_that_does_not_travel_is_refused() -> None:
    with pytest.raises(BadTensor, match="complex64"):
        dtype_name(torch.complex64)
    with pytest.raises(BadTensor, match="float8"):
        torch_dtype("float8_e4m3fn")
