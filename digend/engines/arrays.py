"""torch tensors to wire arrays and back; the only place where the two meet.

Invariant: neither side shares memory with the other. An array outlives the optimizer step that changes the tensor it
was made from, and a tensor lies in memory that torch aligned (the same values at unaligned addresses give other bits in
a matrix product).
"""

import torch
from torch import Tensor

from digend.wire.tensors import DTYPES, Array, BadTensor


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a wire name. Raises BadTensor for one that does not travel."""
    if name not in DTYPES:
        raise BadTensor(f"dtype {name!r} does not travel; one of {', '.join(DTYPES)}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """The wire name of a torch dtype, "bfloat16" for torch.bfloat16. Raises BadTensor for one that does not travel."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise BadTensor(f"dtype {name!r} does not travel; one of {', '.join(DTYPES)}")
    return name


def to_array(tensor: Tensor) -> Array:
    """A copy of the values on the CPU, C-contiguous, from any device, stride or number of dimensions."""
    owned = tensor.detach().to("cpu", copy=True).contiguous()
    flat = owned.reshape(-1).view(torch.uint8).numpy()
    return Array(dtype_name(tensor.dtype), tuple(tensor.shape), flat.data if flat.size else b"")


def to_tensor(array: Array) -> Tensor:
    """A CPU tensor with memory of its own, aligned by torch."""
    tensor = torch.empty(array.shape, dtype=torch_dtype(array.dtype))
    if array.num_bytes:
        tensor.reshape(-1).view(torch.uint8).numpy().data[:] = memoryview(array.data).cast("B")
    return tensor
