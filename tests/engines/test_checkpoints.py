"""Checkpoints: complete or absent, checked before they are believed, exact when restored."""

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from digend.engines import stored
from digend.engines.protocols import TaskFault
from digend.wire.tasks import CheckpointResult, CheckpointTask
from tests.engines.world import JOB, Bench, bench, job_config, same
from tests.pipelines import SIZE


def save(on: Bench, step: int, *, final: bool = False) -> CheckpointResult:
    task = CheckpointTask(job=JOB, incarnation=0, version=step, global_step=step, final=final)
    result = on.engine.run(task, on.context)
    assert isinstance(result, CheckpointResult)
    return result


def trained(folder: Path, root: Path, trainable: str = "full", steps: int = 2, **changes: object) -> Bench:
    on = bench("trainer", job_config(folder, training={"trainable": trainable, "lora_rank": 4, **changes}), root)
    for step in range(steps):
        on.one_step(step)
    return on


@pytest.mark.parametrize(("trainable", "optimizer"), [("full", "adamw"), ("lora", "adamw"), ("full", "adafactor")])
def test_a_restored_run_goes_on_bit_for_bit(flux_folder: Path, tmp_path: Path, trainable: str, optimizer: str) -> None:
    on = trained(flux_folder, tmp_path, trainable, optimizer=optimizer)
    path = save(on, 2).path
    assert path == str(tmp_path / "runs" / JOB / "checkpoints" / "step-000002")
    restored = bench("trainer", on.config, tmp_path, checkpoint=path, version=2)
    assert same(on.values(), restored.values())
    assert restored.engine.applied(JOB) == (2, 2, ())
    weights = restored.prepared.weights
    assert weights is not None
    assert weights.version == 2
    assert on.one_step(2).gradient_norm == restored.one_step(2).gradient_norm
    assert same(on.values(), restored.values())
    fresh = bench("trainer", on.config, tmp_path)
    assert not same(on.values(), fresh.values())


def test_the_reference_of_a_restored_run_is_the_base(flux_folder: Path, tmp_path: Path) -> None:
    options = {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}
    on = bench("trainer", job_config(flux_folder, algorithm={"options": options}), tmp_path)
    on.one_step(0)
    restored = bench("trainer", on.config, tmp_path, checkpoint=save(on, 1).path, version=1)
    results = []
    for each in (on, restored):
        items = each.items(each.groups(1), each.generate(each.generate_task(version=1, step=1)))
        results.append(each.update(items, step=1).kl_sum)
    assert results[0] == results[1] > 0


def damage_missing(folder: Path) -> None:
    (folder / "optimizer.safetensors").unlink()


def damage_torn(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def damage_altered(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {}}')


def damage_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_missing, "optimizer.safetensors is missing"),
        (damage_torn, "weights.safetensors has"),
        (damage_altered, "weights.safetensors differs"),
        (damage_manifest, "does not name weights.safetensors"),
        (damage_no_manifest, "manifest.json"),
        (shutil.rmtree, "step-000001"),
    ],
)
def test_a_damaged_checkpoint_is_refused(flux_folder: Path, tmp_path: Path, damage: object, words: str) -> None:
    on = trained(flux_folder, tmp_path, steps=1)
    path = save(on, 1).path
    assert callable(damage)
    damage(Path(path))
    with pytest.raises(TaskFault, match=words) as fault:
        bench("trainer", on.config, tmp_path, checkpoint=path, version=1)
    assert fault.value.error.reason == "checkpoint"


def test_a_checkpoint_of_another_version_or_base_is_refused(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, steps=1)
    path = save(on, 1).path
    with pytest.raises(TaskFault, match="version is 1, the job's is 3"):
        bench("trainer", on.config, tmp_path, checkpoint=path, version=3)
    other = tmp_path / "other"
    shutil.copytree(flux_folder, other)
    scheduler = other / "scheduler" / "scheduler_config.json"
    scheduler.write_text(scheduler.read_text().replace('"max_shift": 1.15', '"max_shift": 1.2'))
    with pytest.raises(TaskFault, match="digest"):
        bench("trainer", job_config(other), tmp_path, checkpoint=path, version=1)


def test_a_version_without_a_checkpoint_cannot_be_restored(flux_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskFault, match="without a checkpoint"):
        bench("trainer", job_config(flux_folder), tmp_path, version=3)


def test_the_newest_are_kept_and_nothing_hidden_is_left(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder, checkpoint={"keep": 2}), tmp_path)
    for step in range(1, 5):
        on.one_step(step - 1)
        save(on, step)
    left = sorted(path.name for path in (tmp_path / "runs" / JOB / "checkpoints").iterdir())
    assert left == ["step-000003", "step-000004"]


def test_what_a_killed_trainer_left_is_swept(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, steps=1)
    folder = tmp_path / "runs" / JOB / "checkpoints"
    (folder / ".unfinished-step-000001").mkdir(parents=True)
    (folder / ".unfinished-step-000001" / "weights.safetensors").write_bytes(b"torn")
    (folder / ".replaced-step-000009").mkdir()
    save(on, 1)
    assert [path.name for path in folder.iterdir()] == ["step-000001"]


def test_the_same_step_again_replaces_the_old_one(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, steps=1)
    first, second = save(on, 1), save(on, 1)
    assert first == second
    bench("trainer", on.config, tmp_path, checkpoint=second.path, version=1)


def test_a_disk_that_says_no_leaves_the_old_checkpoint(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, steps=1)
    kept = Path(save(on, 1).path)
    on.one_step(1)
    on.engine._runs_dir = tmp_path / "a file where a folder should be"
    on.engine._runs_dir.touch()
    with pytest.raises(TaskFault, match="cannot be written") as fault:
        save(on, 2)
    assert fault.value.error.reason == "checkpoint"
    bench("trainer", on.config, tmp_path, checkpoint=str(kept), version=1)


def test_no_pickle_is_written(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, "lora", steps=1)
    path = Path(save(on, 1, final=True).path)
    kinds = {file.suffix for file in path.rglob("*") if file.is_file()}
    assert kinds <= {".safetensors", ".json", ".txt"}
    named = json.loads((path / "manifest.json").read_text())["files"]
    written = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert written == {*named, "manifest.json"}


def draw(pipeline: object) -> torch.Tensor:
    assert callable(pipeline)
    pictures = pipeline(
        "a red circle",
        height=SIZE,
        width=SIZE,
        num_inference_steps=5,
        guidance_scale=3.5,
        max_sequence_length=8,
        generator=[torch.Generator().manual_seed(5)],
        output_type="latent",
    )
    latents: torch.Tensor = pictures.images
    return latents


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_the_final_pipeline_is_stock_and_trained(flux_folder: Path, tmp_path: Path, trainable: str) -> None:
    from diffusers import DiffusionPipeline

    on = trained(flux_folder, tmp_path, trainable, learning_rate=1e-2)
    result = save(on, 2, final=True)
    assert result.pipeline is not None
    job = on.engine._job
    assert job is not None
    base, final = DiffusionPipeline.from_pretrained(flux_folder), DiffusionPipeline.from_pretrained(result.pipeline)
    for pipeline in (base, final):
        pipeline.set_progress_bar_config(disable=True)
    learned = {name: each.clone() for name, each in final.transformer.state_dict().items()}
    assert learned.keys() == base.transformer.state_dict().keys()
    live = draw_live(on)
    torch.testing.assert_close(draw(final), live, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(draw(base), live, atol=1e-3)
    if trainable == "lora":
        base.load_lora_weights(Path(result.path) / "lora")
        torch.testing.assert_close(draw(base), live, rtol=1e-5, atol=1e-5)


def draw_live(on: Bench) -> torch.Tensor:
    """The same picture from the trainer's own weights."""
    job = on.engine._job
    assert job is not None
    sigmas = torch.tensor(on.prepared.sigmas)
    latents = job.model.initial([torch.Generator().manual_seed(5)], job.shape)
    condition = job.model.encode(["a red circle"])
    with torch.no_grad():
        for index in range(len(sigmas) - 1):
            velocity = job.model.velocity(latents, sigmas[index].expand(1), condition, 3.5, job.shape)
            latents = latents + (sigmas[index + 1] - sigmas[index]) * velocity
    return latents


@pytest.mark.parametrize(
    ("error", "mendable"),
    [
        (OSError(errno.EROFS, "Read-only file system"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (SafetensorError("I/O error: Read-only file system (os error 30)"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (SafetensorError("HeaderTooLarge"), False),
    ],
)
def test_a_disk_that_may_come_back_holds_the_job_and_another_error_does_not(
    flux_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, mendable: bool
) -> None:
    on = trained(flux_folder, tmp_path, steps=1)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(stored, "save_file", refuse)
    with pytest.raises(TaskFault, match="cannot be written") as fault:
        save(on, 1)
    assert fault.value.error.retry is mendable
