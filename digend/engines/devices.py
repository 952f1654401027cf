"""Which torch device a process computes on."""

import torch


def choose_device(configured: str | None, role: str, slot: int) -> str:
    """The configured device, checked; where there is none: a GPU of this box, else cpu.

    Generators take GPUs from the first on, trainers from the last on.

    Raises ValueError where torch does not see the device.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if configured is None:
        if not num_gpus:
            return "cpu"
        return f"cuda:{num_gpus - 1 - slot % num_gpus if role == 'trainer' else slot % num_gpus}"
    try:
        device = torch.device(configured)
    except RuntimeError as error:
        raise ValueError(f"device {configured!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and (device.index or 0) >= num_gpus:
        raise ValueError(f"device {configured!r}: torch sees {num_gpus} GPUs here")
    return str(device)


def gpu_uuid(device: str) -> str | None:
    """How NVML knows a torch device, whatever CUDA_VISIBLE_DEVICES says; None where it is no NVIDIA GPU."""
    if torch.device(device).type != "cuda" or torch.version.cuda is None:
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def gpu_name(device: str) -> str:
    """What CUDA calls the device; empty where it is none."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else ""


def cached_bytes(device: str) -> int:
    """What torch's allocator keeps of a GPU's memory without using it. From any thread."""
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
