"""Memory of a job: by published sizes and by folders, what does not fit, and what would make it fit."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from clients.plan_inputs import slots_of
from clients.plan_memory import ESTIMATED, Worker, memory_of
from digend.config.job import JobConfig
from digend.config.node import NodeConfig
from digend.job_check import read_job
from digend.models.sizes import SIZES
from tests.clients.conftest import ROOT, Digenctl

JOBS = [path for path in sorted((ROOT / "configs/jobs").glob("*.toml")) if "--size" in path.read_text()]
FLUX = str(ROOT / "configs/jobs/flux-dev-lora.toml")
SHAPES = str(ROOT / "configs/jobs/shapes-flow-grpo.toml")


def named_size(path: Path) -> str:
    """As the file's head tells it."""
    found = re.search(r"--size ([\w.-]+)", path.read_text())
    assert found is not None
    return found[1]


def test_every_size_has_a_job() -> None:
    assert {named_size(path) for path in JOBS} == set(SIZES)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_examples_fit_into_eighty_gib_and_not_into_four(path: Path) -> None:
    job = read_job(path).config
    workers = {role: Worker(role=role, gib=80) for role in ("generator", "trainer")}
    memory = memory_of(job, workers, named_size(path))
    assert not memory.refusals
    assert memory.unknown == ""
    trainer = memory.workers["trainer"]
    size = SIZES[named_size(path)]
    assert trainer.device["transformer"] == 2 * size.parameters
    learned = len(size.transformers) * job.training.lora_rank * size.lora_width
    assert trainer.device["adapter"] == trainer.host["published version"] == 4 * learned
    assert trainer.device["optimizer state"] == 8 * learned
    assert f"{learned:,} of a LoRA adapter of rank {job.training.lora_rank}" in memory.trained
    assert trainer.device[ESTIMATED] > memory.workers["generator"].device[ESTIMATED] / 4
    small = {name: Worker(role=worker.role, gib=4) for name, worker in workers.items()}
    assert len(memory_of(job, small, named_size(path)).refusals) == 2


def refusals(gib: float, **changes: object) -> list[str]:
    """Of the FLUX example's trainer."""
    job = read_job(FLUX).config.model_dump(mode="json")
    for key, value in changes.items():
        table, _, name = key.partition("__")
        job[table][name] = value
    worker = {"box/trainer/0": Worker(role="trainer", gib=gib)}
    return list(memory_of(JobConfig.model_validate(job), worker, "flux-dev").refusals)


def test_what_would_make_it_fit() -> None:
    assert refusals(40) == []
    (full,) = refusals(40, training__trainable="full")
    assert re.search(
        r'box/trainer/0 needs 2\d\d\.\d GiB, and 40 GiB .*with training\.trainable = "lora" it would', full
    )
    (encoders,) = refusals(30)
    assert "with model.memory.offload_encoders = true it would need" in encoders
    (single,) = refusals(40, model__dtype="float32")
    assert 'model.dtype = "bfloat16"' in single
    (hopeless,) = refusals(2)
    assert "no option of the job makes it fit (with " in hopeless
    assert 'model.memory.layerwise_casting = "float8_e4m3fn"' in hopeless


def full_bf16(**sampling: object) -> JobConfig:
    job = read_job(FLUX).config.model_dump(mode="json")
    job["training"] |= {"trainable": "full", "ema_decay": 0.9, "gradient_checkpointing": True, "update_batch": 1}
    job["sampling"] |= sampling
    return JobConfig.model_validate(job)


def test_tag_is_told_both_ways() -> None:
    """Full fine-tuning in bfloat16: masters, one gradient, two moments and an average in float32, the average in
    bfloat16 too."""
    memory = memory_of(
        full_bf16(), {"trainer": Worker(role="trainer"), "generator": Worker(role="generator")}, "flux-dev"
    )
    assert set(memory.generating) == {"trainer"}
    tag, numbers = memory.generating["trainer"], SIZES["flux-dev"].parameters
    assert tag.waiting == (4 + 4 + 8 + 4 + 2) * numbers
    assert tag.shared - tag.offloaded == tag.waiting
    assert tag.offloaded == memory.workers["generator"].device_bytes
    assert memory.notes == []


def test_a_rollout_that_fits_only_offloaded_or_not_at_all_is_noted() -> None:
    job = full_bf16(rollout_batch=64)
    tag = memory_of(job, {"t": Worker(role="trainer")}, "flux-dev").generating["t"]
    for gib, says in (
        (tag.shared, ""),
        (tag.offloaded, "with 243.8 GiB moved"),
        (tag.offloaded - 1, "no room for TAG"),
    ):
        notes = memory_of(job, {"t": Worker(role="trainer", gib=gib / 2**30)}, "flux-dev").notes
        assert len(notes) == bool(says)
        assert says in "".join(notes)


def test_options_that_save_memory_are_counted() -> None:
    job = read_job(FLUX, ["model.memory.offload_blocks=1", "model.memory.offload_encoders=true"]).config
    saving = memory_of(job, {"g": Worker(role="generator")}, "flux-dev").workers["g"]
    whole = memory_of(read_job(FLUX).config, {"g": Worker(role="generator")}, "flux-dev").workers["g"]
    assert saving.device["text_encoder_2"] == 0
    assert saving.host["text_encoder_2"] == whole.device["text_encoder_2"]
    assert saving.device["transformer"] < 0.05 * whole.device["transformer"]
    assert saving.device["transformer"] + saving.host["transformer"] == whole.device["transformer"]


def test_a_box_that_offloads_needs_less_and_its_trainer_does_not() -> None:
    node = 'name = "{name}"\n[trainer]\nmemory_gib = 80\n[generator]\nmemory_gib = 24\n{more}'
    more = "offload_encoders = true\noffload_blocks = 1\n"
    slots = slots_of([node_of(node.format(name="strong", more="")), node_of(node.format(name="weak", more=more))])
    workers = {slot.name: Worker(role=slot.role, gib=slot.gib, offload=slot.offload) for slot in slots}
    memory = memory_of(read_job(FLUX).config, workers, "flux-dev")
    (refused,) = memory.refusals
    assert refused.startswith("strong/generator/0 needs")
    weak, strong = (memory.workers[f"{name}/generator/0"] for name in ("weak", "strong"))
    assert weak.device_bytes < 0.2 * strong.device_bytes
    assert memory.workers["weak/trainer/0"].device == memory.workers["strong/trainer/0"].device


def node_of(text: str) -> NodeConfig:
    return NodeConfig.model_validate(tomllib.loads(text))


def test_a_reward_counts_by_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    document = read_job(FLUX).config.model_dump(mode="json")
    document["rewards"] = [{"name": "judge", "options": {"path": str(tmp_path)}}]
    job = JobConfig.model_validate(document)
    workers = {role: Worker(role=role) for role in ("generator", "trainer", "reward")}
    found = memory_of(job, workers, "flux-dev").workers
    assert found["generator"].device["reward judge"] == found["reward"].device["reward judge"] == 1000
    assert "reward judge" not in found["trainer"].device
    document["schedule"] |= {"scoring": "dedicated", "decode": "reward"}
    late = memory_of(JobConfig.model_validate(document), workers, "flux-dev").workers
    assert late["reward"].device == {"vae": 4 * SIZES["flux-dev"].others["vae"], "reward judge": 1000}
    assert "reward judge" not in late["generator"].device


def test_a_folder_is_read(digenctl: Digenctl) -> None:
    result = digenctl("plan", SHAPES)
    assert result.returncode == 0, result.stderr
    assert "transformer: 1,018,860 parameters, 1,018,860 learn" in result.stdout
    assert "activations (estimated)" in result.stdout
    assert "step times: not planned" in result.stdout


def test_what_does_not_fit_is_refused(digenctl: Digenctl, tmp_path: Path) -> None:
    node = tmp_path / "node.toml"
    node.write_text('name = "box"\n[generator]\nmemory_gib = 48\n[trainer]\nmemory_gib = 24\n')
    args = ("plan", FLUX, "--size", "flux-dev", "--nodes", str(node))
    result = digenctl(*args)
    assert result.returncode == 78
    assert "box/trainer/0 needs" in result.stderr
    assert "box/generator/0 needs" not in result.stderr
    document = json.loads(digenctl(*args, "--json").stdout)
    assert len(document["memory"]["refusals"]) == 1
    timed = digenctl(*args, "--generate", "10", "--update", "4")
    assert timed.returncode == 78
    assert "box/trainer/0 needs" in timed.stderr


@pytest.mark.parametrize(
    ("size", "says"),
    [("flux-dv", "did you mean flux-dev?"), ("sd3.5-large", "is of the family sd3, the job's is flux")],
)
def test_sizes_that_are_not_of_the_job(digenctl: Digenctl, size: str, says: str) -> None:
    result = digenctl("plan", FLUX, "--size", size)
    assert result.returncode == 5
    assert says in result.stderr


def test_a_folder_that_is_not_there_names_the_sizes(digenctl: Digenctl) -> None:
    result = digenctl("plan", FLUX)
    assert result.returncode == 0
    assert "--size takes a published one: flux-dev" in result.stdout
