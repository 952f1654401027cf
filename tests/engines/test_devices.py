"""How NVML is told which GPU a torch device is; without a GPU, on what torch would say of one."""

from types import SimpleNamespace

import pytest
import torch

from digend.engines.devices import cached_bytes, gpu_uuid

UUID = "8f2a1c6e-0b1d-4c5f-9a77-1f0e5d3c2b1a"


def test_a_cpu_is_no_gpu() -> None:
    assert gpu_uuid("cpu") is None


def test_uuid_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"cuda:1": SimpleNamespace(uuid=UUID)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known[device])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert gpu_uuid("cuda:1") == UUID
    monkeypatch.setattr(torch.version, "cuda", None)
    assert gpu_uuid("cuda:1") is None, "of another maker"


def test_cached_is_reserved_but_not_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 7)
    assert cached_bytes("cuda:0") == 3
