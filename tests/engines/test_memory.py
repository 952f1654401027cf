"""Options that save memory: what a CPU can run gives the same numbers, and what is refused names its key."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.utils import constants
from safetensors.torch import load_file

from daemons.worker.versions import installed_versions
from digend.config.offload import Offload, with_offload
from digend.engines.engine import LocalEngine
from digend.engines.protocols import TaskFault
from digend.models.pipelines import left_in_host_memory, load_pipeline
from tests.engines.world import Bench, MemoryContext, bench, job_config, same
from tests.families import FAMILIES

LORA = {"trainable": "lora", "lora_rank": 4}


def worker(role: Any, folder: Path, root: Path, name: str, training: Mapping[str, Any] = LORA, **memory: Any) -> Bench:
    """On 32 x 32 pixels, a tile of the tiny VAEs."""
    tables = FAMILIES[name].tables(model={"memory": memory}, training=training, sampling={"width": 32})
    return bench(role, job_config(folder, **tables), root, MemoryContext())


def drawn(on: Bench) -> dict[str, bytes]:
    """Everything that a rollout keeps and shows."""
    result = on.generate(on.generate_task())
    assert result.trajectory is not None
    blobs = (on.context.blobs[result.trajectory.id], on.context.blobs[result.samples.id])
    return {name: bytes(array.data) for blob in blobs for name, array in blob.items()}


@pytest.mark.parametrize("name", ["flux", "wan22"])
def test_rollouts_are_the_same(folders: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Encoders and blocks that come and go, tiles larger than the picture, an attention that is named."""
    options: dict[str, Any] = {
        "offload_encoders": True,
        "offload_blocks": 1,
        "attention_backend": "native",
        "vae_tiling": True,
    }
    plain = worker("generator", folders(name), tmp_path / "a", name)
    saving = worker("generator", folders(name), tmp_path / "b", name, **options)
    assert drawn(saving) == drawn(plain)


def test_a_box_that_offloads_draws_what_one_that_does_not_draws(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """By its node file; the job says nothing. A trainer and a reward process of the same box are left alone."""
    offload = Offload(encoders=True, blocks=1)
    strong = worker("generator", folders("flux"), tmp_path / "strong", "flux")

    def engine(role: Any) -> LocalEngine:
        return LocalEngine(role, "cpu", tmp_path / "weak", tmp_path / "weak", offload=offload)

    weak = bench("generator", strong.config, tmp_path / "weak", MemoryContext(), engine=engine("generator"))
    assert drawn(weak) == drawn(strong)
    trainer = bench("trainer", strong.config, tmp_path / "weak", MemoryContext(), engine=engine("trainer"))
    assert [offloaded(on) for on in (strong, weak, trainer)] == [False, True, False]
    weights = trainer.one_step(0).weights
    assert weights is not None
    weak.engine.adopt(weights, trainer.context.pull(weights.blob))
    assert same(trainer.values(), weak.values())


def offloaded(on: Bench) -> bool:
    """Whether its transformer comes to the device block by block."""
    job = on.engine._job
    assert job is not None
    return any(hasattr(each, "_diffusers_hook") for each in job.model.trainable["transformer"].modules())


@pytest.mark.parametrize(
    ("components", "there"),
    [((), set()), (("text_encoder",), {"text_encoder", "text_encoder_2"}), (("transformer",), {"transformer"})],
)
def test_what_is_offloaded_is_never_on_the_device_as_a_whole(
    folders: Callable[[str], Path], components: tuple[str, ...], there: set[str]
) -> None:
    """A device that holds no bytes shows what was moved to it while the pipeline was loaded."""
    with left_in_host_memory(components):
        pipeline = load_pipeline(str(folders("flux")), "meta", torch.float32)
    modules = {name: each for name, each in pipeline.components.items() if isinstance(each, torch.nn.Module)}
    assert set(modules) == {"transformer", "vae", "text_encoder", "text_encoder_2"}
    assert {name for name, each in modules.items() if next(each.parameters()).device.type == "cpu"} == there


@pytest.mark.parametrize(
    ("job", "box", "expected"),
    [
        ((False, 0), (False, 0), (False, 0)),
        ((False, 0), (True, 2), (True, 2)),
        ((True, 4), (False, 1), (True, 1)),
        ((True, 1), (False, 4), (True, 1)),
        ((False, 3), (False, 0), (False, 3)),
    ],
)
def test_of_job_and_box_the_one_that_needs_less_memory(
    job: tuple[bool, int], box: tuple[bool, int], expected: tuple[bool, int]
) -> None:
    config = job_config(Path("m"), model={"memory": {"offload_encoders": job[0], "offload_blocks": job[1]}})
    memory = with_offload(config, Offload(encoders=box[0], blocks=box[1])).model.memory
    assert (memory.offload_encoders, memory.offload_blocks) == expected
    assert config.model.memory.offload_blocks == job[1]


def test_a_version_binds_where_blocks_are_offloaded(folders: Callable[[str], Path], tmp_path: Path) -> None:
    trainer = worker("trainer", folders("sd3"), tmp_path, "sd3", offload_blocks=1)
    generator = worker("generator", folders("sd3"), tmp_path, "sd3", offload_blocks=1)
    weights = trainer.one_step(0).weights
    assert weights is not None
    generator.engine.adopt(weights, trainer.context.pull(weights.blob))
    assert same(trainer.values(), generator.values())


def test_compiled_blocks_compute_the_same(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """By a backend that changes nothing; rollout and update, with their gradients."""
    plain = worker("trainer", folders("wan"), tmp_path / "a", "wan")
    compiled = worker("trainer", folders("wan"), tmp_path / "b", "wan", compile_blocks="eager")
    for on in (plain, compiled):
        on.update(on.items(on.groups(), on.generate(on.generate_task())))
    assert compiled.parameters.keys() == plain.parameters.keys()
    for name, gradient in plain.gradient().items():
        torch.testing.assert_close(compiled.gradient()[name], gradient, rtol=1e-4, atol=1e-6)


def test_slices_decode_the_same(folders: Callable[[str], Path], tmp_path: Path) -> None:
    plain = worker("generator", folders("flux"), tmp_path / "a", "flux")
    sliced = worker("generator", folders("flux"), tmp_path / "b", "flux", vae_slicing=True)
    one, other = drawn(plain), drawn(sliced)
    assert {name for name in one if one[name] != other[name]} <= {name for name in one if name.endswith("pixels")}
    for name in one:
        assert len(one[name]) == len(other[name])


def test_frozen_weights_in_eight_bits(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """Trainer and generator round alike, so the ratio stays 1; the weights take a quarter."""
    context = MemoryContext()
    tables = FAMILIES["sd3"].tables(model={"memory": {"layerwise_casting": "float8_e4m3fn"}}, training=LORA)
    config = job_config(folders("sd3"), **tables)
    trainer, generator = (bench(role, config, tmp_path, context) for role in ("trainer", "generator"))
    job = trainer.engine._job
    assert job is not None
    stored = {
        each.dtype for each in job.model.trainable["transformer"].get_submodule("transformer_blocks").parameters()
    }
    assert torch.float8_e4m3fn in stored
    assert all(each.dtype == torch.float32 for each in trainer.parameters.values())
    for step in range(2):
        groups = trainer.groups(step)
        rollout = generator.generate(generator.generate_task(version=step, step=step, groups=groups))
        assert trainer.update(trainer.items(groups, rollout), step=step).max_abs_log_ratio <= 1e-6
        weights = trainer.commit(version=step, step=step).weights
        assert weights is not None
        generator.engine.adopt(weights, context.pull(weights.blob))


def test_what_is_saved_has_the_weights_that_were_loaded(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """Not those of eight bits: with the adapter merged they are what an ordinary run would save."""
    values: list[dict[str, torch.Tensor]] = []
    for name, casting in (("plain", "none"), ("cast", "float8_e4m3fn")):
        on = worker("trainer", folders("flux"), tmp_path / name, "flux", layerwise_casting=casting)
        job = on.engine._job
        assert job is not None
        rng = torch.Generator().manual_seed(1)
        for parameter in job.policy.parameters.values():
            parameter.data = 0.1 * torch.randn(parameter.shape, generator=rng)
        job.model.save(str(tmp_path / name / "saved"))
        values.append(load_file(tmp_path / name / "saved/transformer/diffusion_pytorch_model.safetensors"))
    assert same(*values)


@pytest.mark.parametrize(
    ("memory", "training", "words"),
    [
        ({"layerwise_casting": "float8_e4m3fn"}, {"trainable": "full"}, "model.memory.layerwise_casting: weights that"),
        ({"attention_backend": "no_such"}, LORA, "model.memory.attention_backend: .*no_such"),
        ({"compile_blocks": "no_such"}, LORA, "model.memory.compile_blocks: 'no_such' is none of .*inductor"),
    ],
)
def test_what_is_refused(
    folders: Callable[[str], Path],
    tmp_path: Path,
    memory: Mapping[str, Any],
    training: Mapping[str, Any],
    words: str,
) -> None:
    with pytest.raises(TaskFault, match=words) as fault:
        worker("generator", folders("flux"), tmp_path, "flux", training, **memory)
    assert fault.value.error.reason == "config"


def test_what_a_worker_says_of_attention_is_what_diffusers_takes() -> None:
    assert installed_versions().numbers["attention_backend"] == constants.DIFFUSERS_ATTN_BACKEND
