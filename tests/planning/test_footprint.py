"""Memory from the headers of safetensors files."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from digend.models.components import Component, Counted, read_components
from digend.models.footprint import Footprint, Training, footprint
from digend.rl.layouts import ONE_RANK, Layout

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


BLOCKS = Component(
    name="transformer",
    shapes={
        "embed.weight": (6, 4),
        "blocks.0.attn.to_q.weight": (8, 4),
        "blocks.1.attn.to_q.weight": (8, 4),
        "blocks.2.attn.to_q.weight": (10, 4),
    },
)


def cut(layout: Layout, *, rank: int | None = None, dtype: str = "bfloat16") -> Footprint:
    training = Training(trainable=("transformer",), rank=rank, targets=("attn.to_q",), averages=1, units=("blocks",))
    return footprint([BLOCKS, VAE], dtype, training, "trainer", layout=layout)


def test_shards_are_as_large_as_the_first() -> None:
    """6, 8, 8 and 10 rows over 4 ranks: 2, 2, 2 and 3 of four numbers."""
    assert BLOCKS.shard(4) == 4 * (2 + 2 + 2 + 3)
    assert BLOCKS.in_pass(("blocks",)) == 4 * (6 + 8 + 10)
    assert BLOCKS.adapter_parameters(("attn.to_q",), 2, 4) == 3 * 4 + (2 + 2 + 3) * 2


def test_a_rank_with_shards() -> None:
    """36 numbers of its own of 128, and 96 whole in a pass; the VAE is whole on every rank."""
    found = cut(Layout(ranks=4))
    assert found.device == {
        "transformer": 2 * 36,
        "vae": 144,
        "float32 masters": 4 * 36,
        "gradients": (2 * 4 + 2) * 36 + (4 + 2) * 96,
        "optimizer state": 8 * 36,
        "copies": (2 + 4) * 36,
        "gathered weights": 2 * 96,
    }
    assert found.host == {"published version": 2 * 128}
    assert found.gradient == 4 * 36
    assert cut(Layout(ranks=8, replicas=2)) == found


def test_a_rank_that_keeps_weights_and_gradient_whole() -> None:
    found, less = cut(Layout(ranks=4, reshard=False)).device, cut(Layout(ranks=4)).device
    assert found["gathered weights"] == 2 * 128
    assert found["gradients"] == (2 * 4 + 2) * 36 + 4 * 128
    assert {part for part in found if found[part] != less[part]} == {"gathered weights", "gradients"}


@pytest.mark.parametrize("rank", [None, 2])
def test_replicas_on_every_rank_are_as_one_rank(rank: int | None) -> None:
    assert cut(Layout(ranks=4, replicas=4, reshard=False), rank=rank) == cut(ONE_RANK, rank=rank)


def test_an_adapter_in_shards() -> None:
    """Its base is cut too; the share of it in a pass is that of the base."""
    whole, own = 3 * 2 * 4 + (8 + 8 + 10) * 2, 3 * 4 + (2 + 2 + 3) * 2
    found = cut(Layout(ranks=4), rank=2).device
    passing = -(-whole * 96 // 128)
    assert found["adapter"] == 4 * own
    assert found["gathered weights"] == 2 * 96 + 4 * passing
    assert found["gradients"] == 8 * own + 4 * passing
    kept = cut(Layout(ranks=4, reshard=False), rank=2).device
    assert (kept["gathered weights"], kept["gradients"]) == (2 * 128 + 4 * whole, 8 * own + 4 * whole)


def test_published_numbers_are_cut_as_one_tensor() -> None:
    counted = Counted(name="transformer", num_parameters=130, lora_width=7, largest_block=40, outside=20)
    assert (counted.shard(4), counted.in_pass(()), counted.adapter_parameters((), 2, 4)) == (33, 100, 4)
    assert Counted(name="vae", num_parameters=9).in_pass(()) == 9


def test_names_of_layouts() -> None:
    layouts = [(1, 1, True), (4, 4, True), (4, 1, True), (4, 1, False), (8, 2, True), (8, 2, False)]
    names = [Layout(ranks=ranks, replicas=replicas, reshard=reshard).name for ranks, replicas, reshard in layouts]
    assert names == ["one rank", "replicate", "shard", "reshard off", "shard, 2 replicas", "reshard off, 2 replicas"]
