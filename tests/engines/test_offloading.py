"""Training state in host memory while the trainer generates: nothing that is trained changes by a bit."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.engines.offloading import Offloading, checksum, training_state
from digend.engines.policy import OLD
from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.tasks import OFFLOAD, RESTORE, EncodeTask, GenerateTask, Prompt
from tests.engines.test_checkpoints import save
from tests.engines.world import JOB, Bench, MemoryContext, bench, job_config, same

EMA = {"ema_decay": 0.9, "ema_interval": 1}
CPU = torch.device("cpu")
NFT: dict[str, object] = {"name": "diffusion_nft", "options": {"decay_type": 1, "kl_coefficient": 0.0}}
KL: dict[str, object] = {"options": {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}}

KINDS: Mapping[str, dict[str, Mapping[str, object]]] = {
    "full": {"training": EMA},
    "lora": {"training": {**EMA, "trainable": "lora", "lora_rank": 4}},
    "full-bf16": {"training": EMA, "model": {"dtype": "bfloat16"}},
    "lora-bf16": {"training": {**EMA, "trainable": "lora", "lora_rank": 4}, "model": {"dtype": "bfloat16"}},
    "nft-bf16": {"training": EMA, "model": {"dtype": "bfloat16"}, "algorithm": NFT},
    "kl-adafactor": {"training": {**EMA, "optimizer": "adafactor"}, "algorithm": KL},
}

EVERY_DAY = ("lora", "full-bf16")


def trainer(folder: Path, root: Path, kind: str, **schedule: object) -> Bench:
    changes: dict[str, Any] = {**KINDS[kind], "schedule": {"tag_checksums": True, **schedule}}
    changes["training"] = {**changes["training"], "deterministic": True, "learning_rate": 1e-2}
    return bench("trainer", job_config(folder, **changes), root)


def state(on: Bench) -> dict[str, torch.Tensor]:
    assert on.engine._job is not None
    training = on.engine._training(JOB)
    return training_state(on.engine._job.policy, training.masters, training.optimizer, CPU)


def away(on: Bench) -> int:
    assert on.engine._offloading is not None
    return on.engine._offloading.away


def tag(on: Bench, step: int, *, offload: bool) -> GenerateTask:
    return replace(on.generate_task(version=step, step=step), assist=True, offload=offload)


def step_with_tag(on: Bench, step: int, *, offload: bool) -> None:
    """A global step of two micro-batches; before each the trainer generates, before the second twice."""
    first, second = on.groups(step)
    for micro_batch, group in enumerate((first, second)):
        task = replace(tag(on, step, offload=offload), groups=(group,), micro_batch=micro_batch)
        made = on.generate(task)
        assert (away(on) > 0) is offload
        if micro_batch:
            made = on.generate(task)
        on.update(on.items((group,), made), micro_batch=micro_batch, step=step)
        assert away(on) == 0
    on.generate(tag(on, step, offload=offload))
    on.commit(version=step, step=step, micro_batches=(0, 1))


@pytest.mark.parametrize(
    "kind", [kind if kind in EVERY_DAY else pytest.param(kind, marks=pytest.mark.matrix) for kind in KINDS]
)
def test_weights_and_all_other_state_are_those_of_shared_memory(flux_folder: Path, tmp_path: Path, kind: str) -> None:
    shared, offloaded = (trainer(flux_folder, tmp_path / name, kind) for name in ("shared", "offloaded"))
    for step in range(2):
        step_with_tag(shared, step, offload=False)
        step_with_tag(offloaded, step, offload=True)
    assert same(shared.values(), offloaded.values())
    assert checksum(state(shared)) == checksum(state(offloaded))
    assert (
        Path(save(shared, 2).path, "manifest.json").read_bytes()
        == Path(save(offloaded, 2).path, "manifest.json").read_bytes()
    )
    assert offloaded.context.stages.count(OFFLOAD) == offloaded.context.stages.count(RESTORE) == 6
    assert not {OFFLOAD, RESTORE} & set(shared.context.stages)


def test_what_waits_is_what_only_training_needs(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "nft-bf16")
    on.one_step(0)
    groups = on.groups(1)
    on.update(on.items(groups, on.generate(on.generate_task(version=1, step=1))), step=1)
    assert on.engine._job is not None
    policy, names = on.engine._job.policy, state(on)
    kinds = {name.rpartition("/transformer/")[0] for name in names}
    assert kinds == {"master", "gradient", "step", "exp_avg", "exp_avg_sq", "average/ema", "average/old", "copy/ema"}
    stays = {id(each) for each in (*policy.parameters.values(), *policy.copies[OLD].values())}
    assert not stays & {id(each) for each in names.values()}
    before = {id(each): each.data_ptr() for each in names.values()}
    held = checksum(names)
    on.generate(tag(on, 1, offload=True))
    assert away(on) == sum(each.nbytes for each in names.values())
    assert all(each.data_ptr() != before[id(each)] for each in names.values())
    assert checksum(names) == held


def test_a_cancelled_tag_leaves_the_trainer_ready(flux_folder: Path, tmp_path: Path) -> None:
    left, alone = (trainer(flux_folder, tmp_path / name, "full") for name in ("left", "alone"))
    for on in (left, alone):
        on.one_step(0)
        groups = on.groups(1)
        on.update(on.items(groups, on.generate(on.generate_task(version=1, step=1))), step=1)
    left.context.cancel_at = len(left.context.steps) + 2
    with pytest.raises(Cancelled):
        left.generate(tag(left, 1, offload=True))
    left.context.cancel_at = None
    assert left.context.stages[-1] == RESTORE
    assert away(left) == 0
    assert same(left.gradient(), alone.gradient())
    assert checksum(state(left)) == checksum(state(alone))
    assert left.commit(version=1, step=1).gradient_norm == alone.commit(version=1, step=1).gradient_norm
    assert same(left.values(), alone.values())


def test_kill_9_halfway_costs_what_came_after_the_checkpoint(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "full")
    on.one_step(0)
    path = save(on, 1).path
    (tmp_path / "job.json").write_text(on.config.model_dump_json(), "utf-8")
    command = [sys.executable, "-m", "tests.engines.killed_in_offload", str(tmp_path / "job.json"), path, str(tmp_path)]
    killed = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    restored = bench("trainer", on.config, tmp_path, checkpoint=path, version=1)
    for each in (on, restored):
        step_with_tag(each, 1, offload=each is restored)
    assert same(on.values(), restored.values())
    assert checksum(state(on)) == checksum(state(restored))


def test_a_tag_that_fails_leaves_the_trainer_ready(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "full")
    on.one_step(0)
    group = on.groups(1)[0]
    gone = replace(group, condition=replace(group.condition, id="gone", digest="gone"))
    with pytest.raises(TaskFault, match="does not hold gone"):
        on.generate(replace(tag(on, 1, offload=True), groups=(gone,)))
    assert on.context.stages[-1] == RESTORE
    assert away(on) == 0


def test_encoding_lets_it_wait_and_an_evaluation_does_not(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, "full")
    on.one_step(0)
    on.generate(tag(on, 1, offload=True))
    on.engine.run(EncodeTask(job=JOB, incarnation=0, prompts=(Prompt(uid="x", text="red"),)), on.context)
    on.generate(tag(on, 1, offload=False))
    assert away(on) > 0, "what is out of the way may stay there"
    on.generate(replace(tag(on, 1, offload=False), purpose="evaluate", assist=False))
    assert away(on) == 0
    on.generate(tag(on, 1, offload=True))
    path = save(on, 1).path
    assert away(on) == 0
    assert bench("trainer", on.config, tmp_path, checkpoint=path, version=1).prepared.num_trainable
    on.generate(tag(on, 1, offload=True))
    on.engine.end(JOB)


@dataclass
class Tensors:
    """State made up: two tensors, one of them not contiguous."""

    weights: torch.Tensor
    moments: torch.Tensor

    @classmethod
    def made(cls) -> "Tensors":
        rng = torch.Generator().manual_seed(3)
        return cls(torch.randn(4, 6, generator=rng).t(), torch.randn(5, generator=rng).to(torch.bfloat16))

    def named(self) -> dict[str, torch.Tensor]:
        return {"weights": self.weights, "moments": self.moments}


def test_layouts_come_back_and_host_memory_is_used_again() -> None:
    made, context = Tensors.made(), MemoryContext()
    moving = Offloading(CPU, made.named, verify=True)
    values, strides = {name: each.clone() for name, each in made.named().items()}, made.weights.stride()
    places = list[int]()
    for _ in range(3):
        moving.offload(context)
        moving.offload(context)
        places.append(made.weights.data_ptr())
        moving.restore(context)
        moving.restore(context)
    assert len(set(places)) == 1
    assert made.weights.stride() == strides
    assert same(values, made.named())
    assert context.stages == ["allocate", OFFLOAD, RESTORE] * 3


def test_a_byte_that_changes_in_host_memory_fails_the_job() -> None:
    made, context = Tensors.made(), MemoryContext()
    moving = Offloading(CPU, made.named, verify=True)
    moving.offload(context)
    made.moments.view(torch.int16)[2] ^= 1
    with pytest.raises(TaskFault, match="otherwise than it left") as caught:
        moving.restore(context)
    assert caught.value.error.reason == "weights"


def failing_at(call: int) -> Iterator[bool]:
    yield from (number == call for number in range(1, 100))


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("there", [True, False])
def test_memory_that_runs_out_halfway_moves_nothing(monkeypatch: pytest.MonkeyPatch, call: int, there: bool) -> None:
    """`there`: on the way to host memory; else on the way back."""
    made, context = Tensors.made(), MemoryContext()
    moving = Offloading(CPU, made.named, verify=False)
    if not there:
        moving.offload(context)
    places: Sequence[int] = [each.data_ptr() for each in made.named().values()]
    maker = "zeros_like" if there else "empty_like"
    fails, real = failing_at(call), getattr(torch, maker)

    def make(*args: Any, **options: Any) -> torch.Tensor:
        if next(fails):
            raise torch.OutOfMemoryError("none left")
        made: torch.Tensor = real(*args, **options)
        return made

    monkeypatch.setattr(torch, maker, make)
    with pytest.raises(TaskFault if there else torch.OutOfMemoryError, match="none left"):
        moving.offload(context) if there else moving.restore(context)
    assert [each.data_ptr() for each in made.named().values()] == places
    assert (moving.away == 0) is there
    monkeypatch.undo()
    moving.offload(context)
    moving.restore(context)
    assert same(made.named(), Tensors.made().named())
