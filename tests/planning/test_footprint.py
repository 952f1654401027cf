"""Memory from the headers of safetensors files."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from digend.models.footprint import Component, Training, footprint, read_components

LINEAR = {"block.attn.to_q.weight": (8, 4), "block.attn.to_q.bias": (8,), "block.norm.weight": (4,)}
FULL = Training(trainable=("transformer",), rank=None, targets=())
LORA = Training(trainable=("transformer",), rank=2, targets=("attn.to_q", "norm"))
TRANSFORMER, VAE = (
    Component(name="transformer", shapes=LINEAR),
    Component(name="vae", shapes={"conv.weight": (2, 2, 3, 3)}),
)


def write(folder: Path, tensors: dict[str, tuple[int, ...]], name: str = "model.safetensors") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: np.zeros(shape, dtype=np.float16) for key, shape in tensors.items()}, folder / name)


def pipeline(path: Path, *components: str) -> str:
    index = {"_class_name": "FluxPipeline", "safety": [None, None], **{name: ["diffusers", "X"] for name in components}}
    (path / "model_index.json").write_text(json.dumps(index))
    return str(path)


def test_components_are_what_has_weights(tmp_path: Path) -> None:
    write(tmp_path / "transformer", LINEAR)
    (tmp_path / "scheduler").mkdir()
    (found,) = read_components(pipeline(tmp_path, "transformer", "scheduler"))
    assert found == TRANSFORMER
    assert found.num_parameters == 32 + 8 + 4


def test_shards_are_read_by_their_index_and_variants_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "transformer"
    write(folder, {"a": (3,)}, "x-1.safetensors")
    write(folder, {"b": (4,)}, "x-2.safetensors")
    write(folder, {"a": (3,), "b": (4,)}, "x.fp16.safetensors")
    index = {"weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}
    (folder / "x.safetensors.index.json").write_text(json.dumps(index))
    (found,) = read_components(pipeline(tmp_path, "transformer"))
    assert found.shapes == {"a": (3,), "b": (4,)}


def test_the_demo_model_is_read() -> None:
    folder = Path(__file__).parents[2] / "configs/models/shapes-flux"
    found = {each.name: each.num_parameters for each in read_components(str(folder))}
    assert set(found) == {"transformer", "vae", "text_encoder", "text_encoder_2"}
    assert found["transformer"] == max(found.values())


@pytest.mark.parametrize("break_it", ["missing", "index", "weights"])
def test_what_cannot_be_read_is_named(tmp_path: Path, break_it: str) -> None:
    path = str(tmp_path) if break_it == "missing" else pipeline(tmp_path, "transformer")
    if break_it == "index":
        (tmp_path / "model_index.json").write_text("[]")
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises((OSError, ValueError), match="model"):
        read_components(path)


def test_full_training() -> None:
    trainer = footprint([TRANSFORMER, VAE], "float32", FULL, "trainer")
    assert trainer.device == {"transformer": 176, "vae": 144, "gradients": 352, "optimizer state": 352}
    assert trainer.host == {"published version": 176}
    generator = footprint([TRANSFORMER, VAE], "float32", FULL, "generator")
    assert generator.device == {"transformer": 176, "vae": 144}
    assert generator.host == {"staged version": 176}


def test_half_precision_keeps_the_vae_in_float32() -> None:
    assert footprint([TRANSFORMER, VAE], "bfloat16", FULL, "generator").device == {"transformer": 88, "vae": 144}


def test_full_fine_tuning_in_half_precision_has_masters_in_float32() -> None:
    trainer = footprint([TRANSFORMER, VAE], "bfloat16", FULL, "trainer")
    assert trainer.device == {
        "transformer": 88,
        "vae": 144,
        "float32 masters": 176,
        "gradients": 352 + 88,
        "optimizer state": 352,
    }


def test_an_adapter_is_small_and_in_float32() -> None:
    """to_q only: 2 x (8 + 4) numbers; a norm has no matrix."""
    trainer = footprint([TRANSFORMER], "bfloat16", LORA, "trainer")
    assert trainer.device == {"transformer": 88, "adapter": 96, "gradients": 192, "optimizer state": 192}
