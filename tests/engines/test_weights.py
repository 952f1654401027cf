"""A published version binds every tensor or none."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from digend.engines.arrays import to_array
from digend.engines.protocols import TaskFault
from digend.wire.changes import apply_changes
from digend.wire.refs import WeightsRef
from digend.wire.tensors import Array, digest_of, manifest_of
from tests.engines.world import Bench, MemoryContext, bench, job_config, same


class Pair:
    """A trainer that has published version 1, and a generator that has not heard of it."""

    def __init__(self, folder: Path, root: Path, trainable: str) -> None:
        config = job_config(folder, training={"trainable": trainable, "lora_rank": 4})
        context = MemoryContext()
        self.trainer = bench("trainer", config, root, context)
        self.generator = bench("generator", config, root, context)
        weights = self.trainer.one_step(0).weights
        assert weights is not None
        self.weights: WeightsRef = weights
        self.tensors: dict[str, Array] = dict(context.pull(weights.blob))


@pytest.fixture(params=["full", "lora"])
def pair(request: pytest.FixtureRequest, flux_folder: Path, tmp_path: Path) -> Pair:
    return Pair(flux_folder, tmp_path, request.param)


def refused(on: Bench, weights: WeightsRef, tensors: dict[str, Array], match: str) -> None:
    """By check_weights and by adopt, with nothing changed."""
    values = on.values()
    for act in (on.engine.check_weights, on.engine.adopt):
        with pytest.raises(TaskFault, match=match) as fault:
            act(weights, tensors)
        assert fault.value.error.reason == "weights"
    assert same(values, on.values())


def test_all_bind(pair: Pair) -> None:
    addresses = {name: each.data_ptr() for name, each in pair.generator.parameters.items()}
    assert not same(pair.trainer.values(), pair.generator.values())
    assert pair.generator.engine.check_weights(pair.weights, pair.tensors) == pair.weights.num_tensors
    pair.generator.engine.adopt(pair.weights, pair.tensors)
    assert same(pair.trainer.values(), pair.generator.values())
    assert addresses == {name: each.data_ptr() for name, each in pair.generator.parameters.items()}
    assert pair.generator.engine.applied("job-1") == (1, -1, ())


def test_all_but_one_is_refused(pair: Pair) -> None:
    name = sorted(pair.tensors)[-1]
    del pair.tensors[name]
    short = replace(pair.weights, num_tensors=len(pair.tensors))
    total = pair.weights.num_tensors
    refused(pair.generator, short, pair.tensors, f"bound {total - 1} of {total}: missing {name}")


def test_fewer_than_were_published_is_refused(pair: Pair) -> None:
    del pair.tensors[sorted(pair.tensors)[0]]
    refused(pair.generator, pair.weights, pair.tensors, "published with")


def test_one_too_many_is_refused(pair: Pair) -> None:
    pair.tensors["transformer/extra"] = to_array(torch.zeros(1))
    more = replace(pair.weights, num_tensors=len(pair.tensors))
    refused(pair.generator, more, pair.tensors, "transformer/extra is no parameter")


def test_another_shape_is_refused(pair: Pair) -> None:
    name = sorted(pair.tensors)[0]
    pair.tensors[name] = to_array(torch.zeros(3, 5, 7))
    refused(pair.generator, pair.weights, pair.tensors, r"float32\[3, 5, 7\]")


def test_another_dtype_is_refused(pair: Pair) -> None:
    name = sorted(pair.tensors)[0]
    pair.tensors[name] = to_array(torch.zeros(pair.tensors[name].shape, dtype=torch.bfloat16))
    refused(pair.generator, pair.weights, pair.tensors, "bfloat16")


def test_another_form_is_refused(pair: Pair) -> None:
    other = "lora" if pair.weights.form == "full" else "full"
    refused(pair.generator, replace(pair.weights, form=other), pair.tensors, other)


def test_a_trainer_has_its_own(pair: Pair) -> None:
    values = pair.trainer.values()
    zeros = {name: replace(array, data=bytes(array.num_bytes)) for name, array in pair.tensors.items()}
    pair.trainer.engine.adopt(pair.weights, zeros)
    assert same(values, pair.trainer.values())


def test_what_is_published_outlives_the_next_step(pair: Pair) -> None:
    before = {name: bytes(array.data) for name, array in pair.tensors.items()}
    pair.trainer.one_step(1)
    assert before == {name: bytes(array.data) for name, array in pair.tensors.items()}


def test_changes_lead_to_the_same_version_and_only_where_they_are_less(pair: Pair) -> None:
    """The learning rate of these jobs changes nearly every float32; in bfloat16 few elements move."""
    assert pair.weights.changes is None, "all elements changed, so there is nothing to gain"


@pytest.mark.parametrize(("publish", "offered"), [("changes", True), ("whole", False)])
def test_a_bfloat16_model_offers_its_changes(flux_folder: Path, tmp_path: Path, publish: str, offered: bool) -> None:
    training = {"trainable": "full", "learning_rate": 1e-6, "publish": publish}
    config = job_config(flux_folder, model={"dtype": "bfloat16"}, training=training)
    context = MemoryContext()
    trainer = bench("trainer", config, tmp_path, context)
    before = context.pull(trainer.prepared.weights.blob) if trainer.prepared.weights else {}
    weights = trainer.one_step(0).weights
    assert weights is not None
    assert (weights.changes is not None) == offered
    if weights.changes is not None:
        assert weights.changes.since == 0
        assert weights.changes.blob.num_bytes < weights.blob.num_bytes / 2
        applied = apply_changes(before, context.pull(weights.changes.blob))
        assert digest_of(manifest_of(applied)) == weights.blob.digest


def test_an_adapter_can_be_rounded_by_the_sender(flux_folder: Path, tmp_path: Path) -> None:
    training = {"trainable": "lora", "lora_rank": 4, "publish_dtype": "model", "ema_decay": 0.9}
    config = job_config(flux_folder, model={"dtype": "bfloat16"}, training=training)
    context = MemoryContext()
    trainer, generator = bench("trainer", config, tmp_path, context), bench("generator", config, tmp_path, context)
    weights = trainer.one_step(0).weights
    assert weights is not None
    tensors = dict(context.pull(weights.blob))
    assert {each.dtype for each in tensors.values()} == {"bfloat16"}
    assert "cast" in context.stages
    generator.engine.adopt(weights, tensors)
    rounded = {name: each.to(torch.bfloat16).float() for name, each in trainer.values().items()}
    assert same(rounded, generator.values())
    assert {each.dtype for each in generator.parameters.values()} == {torch.float32}
