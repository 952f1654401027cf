"""A published version binds every tensor or none."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from digend.engines.arrays import to_array
from digend.engines.protocols import TaskFault
from digend.wire.refs import WeightsRef
from digend.wire.tensors import Array
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
