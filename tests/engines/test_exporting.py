"""Exported files draw, in stock diffusers, what the run's own policy draws; what there is not is refused by name."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import FluxPipeline, FluxTransformer2DModel

from digend.config.emit import resolved_toml
from digend.engines.exporting import CannotExport, export
from digend.engines.policy import EMA
from digend.exitcodes import ExitCode
from digend.wire.tasks import CheckpointTask
from tests.engines.world import JOB, Bench, bench, job_config


def trained(model: Path, root: Path, trainable: str) -> Bench:
    """Two global steps, each with a checkpoint, and the job file beside them."""
    training = {"trainable": trainable, "lora_rank": 4, "ema_decay": 0.5, "ema_interval": 1, "learning_rate": 1e-2}
    on = bench("trainer", job_config(model, training=training), root)
    for step in range(2):
        on.one_step(step)
        task = CheckpointTask(job=JOB, incarnation=0, version=step + 1, global_step=step + 1, final=False)
        on.engine.run(task, on.context)
    (root / "runs" / JOB / "job.toml").write_text(resolved_toml(on.config), "utf-8")
    return on


@pytest.fixture(scope="module")
def lora(flux_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Path]:
    root = tmp_path_factory.mktemp("lora")
    return trained(flux_folder, root, "lora"), root / "runs" / JOB


def output(transformer: FluxTransformer2DModel) -> torch.Tensor:
    """A forward pass on fixed inputs."""
    rng = torch.Generator().manual_seed(3)
    config = transformer.config
    with torch.no_grad():
        result: torch.Tensor = transformer(
            hidden_states=torch.randn(1, 4, config.in_channels, generator=rng),
            encoder_hidden_states=torch.randn(1, 3, config.joint_attention_dim, generator=rng),
            pooled_projections=torch.randn(1, config.pooled_projection_dim, generator=rng),
            timestep=torch.tensor([0.5]),
            img_ids=torch.zeros(4, 3),
            txt_ids=torch.zeros(3, 3),
            guidance=torch.tensor([3.5]) if config.guidance_embeds else None,
            return_dict=False,
        )[0]
    return result


def own(on: Bench, average: str = "") -> torch.Tensor:
    """The same through the run's policy, or its average."""
    assert on.engine._job is not None
    with on.engine._job.policy.using(average):
        return output(on.engine._job.model.trainable["transformer"])


def same(left: torch.Tensor, right: torch.Tensor) -> None:
    """But for rounding, which depends on where in memory the weights are."""
    torch.testing.assert_close(left, right, rtol=0, atol=1e-5)


def test_full_weights_and_their_average(flux_folder: Path, tmp_path: Path) -> None:
    on = trained(flux_folder, tmp_path, "full")
    run = tmp_path / "runs" / JOB
    made = export(run, tmp_path / "now", global_step=None, ema=False, merge=False)
    assert (made.form, made.global_step) == ("pipeline", 2)
    same(output(FluxPipeline.from_pretrained(tmp_path / "now").transformer), own(on))
    export(run, tmp_path / "average", global_step=2, ema=True, merge=True)
    same(output(FluxPipeline.from_pretrained(tmp_path / "average").transformer), own(on, EMA))
    assert float((own(on) - own(on, EMA)).abs().max()) > 1e-3


def test_an_adapter(flux_folder: Path, tmp_path: Path, lora: tuple[Bench, Path]) -> None:
    on, run = lora
    made = export(run, tmp_path / "adapter", global_step=None, ema=False, merge=False)
    assert made.form == "lora"
    stock = FluxPipeline.from_pretrained(flux_folder)
    before = output(stock.transformer)
    stock.load_lora_weights(tmp_path / "adapter")
    same(output(stock.transformer), own(on))
    assert float((before - own(on)).abs().max()) > 1e-4


def test_merged_weights_are_the_base_plus_the_scaled_product(
    flux_folder: Path, tmp_path: Path, lora: tuple[Bench, Path]
) -> None:
    on, run = lora
    export(run, tmp_path / "merged", global_step=2, ema=False, merge=True)
    merged = dict(FluxPipeline.from_pretrained(tmp_path / "merged").transformer.named_parameters())
    base = dict(FluxPipeline.from_pretrained(flux_folder).transformer.named_parameters())
    training, values = on.config.training, on.values()
    checked = 0
    for name in values:
        if "lora_A" not in name:
            continue
        target = name.removeprefix("transformer/").replace(".lora_A.default", "")
        a, b = values[name], values[name.replace("lora_A", "lora_B")]
        expected = base[target] + b @ a * training.lora_alpha / training.lora_rank
        torch.testing.assert_close(merged[target], expected)
        checked += 1
    assert checked > 0
    assert merged.keys() == base.keys()


def test_an_earlier_global_step(tmp_path: Path, lora: tuple[Bench, Path]) -> None:
    _, run = lora
    assert export(run, tmp_path / "first", global_step=1, ema=False, merge=False).version == 1
    with pytest.raises(CannotExport, match=r"no checkpoint of global step 7 in .*: there are 1, 2; the nearest is 2"):
        export(run, tmp_path / "none", global_step=7, ema=False, merge=False)
    assert not (tmp_path / "none").exists()


@pytest.mark.matrix
def test_by_command(tmp_path: Path, lora: tuple[Bench, Path]) -> None:
    _, run = lora

    def digenctl(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "clients", "export", str(run), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = digenctl("out")
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout.startswith("out: ")
    assert done.stdout.endswith(" tensors of global step 2, for load_lora_weights\n")
    assert (tmp_path / "out" / "pytorch_lora_weights.safetensors").is_file()
    again = digenctl("out")
    assert again.returncode == ExitCode.USAGE
    assert "out exists and is not empty: name a new folder" in again.stderr
    missing = digenctl("other", "--global-step", "9")
    assert missing.returncode == ExitCode.NOT_FOUND
    assert "there are 1, 2; the nearest is 2" in missing.stderr


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def other_weights(folder: Path) -> None:
    """A manifest that is true of a file whose tensors are not the job's."""
    from safetensors.torch import load_file, save_file

    from digend.engines.digests import file_digest

    tensors = load_file(folder / "weights.safetensors")
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, folder / "weights.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["weights.safetensors"] = {
        "bytes": (folder / "weights.safetensors").stat().st_size,
        "blake2b": file_digest(folder / "weights.safetensors"),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda at: cut(at / "weights.safetensors"), "weights.safetensors has .* bytes, the manifest says"),
        (lambda at: flip(at / "weights.safetensors"), "weights.safetensors differs from its digest"),
        (lambda at: flip(at / "optimizer.safetensors"), "optimizer.safetensors differs from its digest"),
        (lambda at: (at / "averages.safetensors").unlink(), "averages.safetensors is missing"),
        (lambda at: (at / "manifest.json").write_text("{"), "cannot be read"),
        (lambda at: (at / "manifest.json").write_text("[]"), "cannot be read"),
        (lambda at: (at / "manifest.json").write_text('{"files": []}'), "cannot be read|does not name"),
        (lambda at: (at / "manifest.json").write_text('{"files": {"weights.safetensors": 1}}'), "does not name"),
        (other_weights, r"bound \d+ of \d+: missing"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, lora: tuple[Bench, Path], damage: Callable[[Path], object], words: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(lora[1], run)
    damage(run / "checkpoints" / "step-000002")
    with pytest.raises(CannotExport, match=words):
        export(run, tmp_path / "out", global_step=2, ema=False, merge=False)
    assert not (tmp_path / "out").exists()
    assert export(run, tmp_path / "out", global_step=1, ema=False, merge=False).version == 1


def test_what_is_not_named_like_a_checkpoint_is_none(tmp_path: Path, lora: tuple[Bench, Path]) -> None:
    """A person's copy, and one that has lost its manifest: the newest of the others is taken."""
    run = tmp_path / "run"
    shutil.copytree(lora[1], run)
    folder = run / "checkpoints"
    for name in ("step-000002.keep", "step-0000099x", "step-old"):
        shutil.copytree(folder / "step-000001", folder / name)
    shutil.copytree(folder / "step-000001", folder / "step-000050")
    (folder / "step-000050" / "manifest.json").unlink()
    assert export(run, tmp_path / "newest", global_step=None, ema=False, merge=False).global_step == 2
    with pytest.raises(CannotExport, match="there are 1, 2; the nearest is 2"):
        export(run, tmp_path / "none", global_step=50, ema=False, merge=False)
