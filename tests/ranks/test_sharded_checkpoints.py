"""Checkpoints of weights in shards: each rank writes its own, any number of ranks reads them, one that fails leaves
none."""

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.checkpoint_names import tensor_file, tensor_files
from digend.config.emit import resolved_toml
from digend.config.job import JobConfig
from digend.engines.checkpoints import KINDS, Checkpoint, read_checkpoint
from digend.engines.exporting import export
from digend.engines.protocols import TaskFault
from digend.engines.ranks import sharded
from digend.wire.tasks import CheckpointResult, CheckpointTask
from tests.engines.world import JOB, Bench, MemoryContext, job_config, prepare_task, same
from tests.ranks.crew import Crew, global_steps, published

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

FULL: dict[str, Any] = {"trainable": "full", "ema_decay": 0.5, "ema_interval": 1}
LORA: dict[str, Any] = {"trainable": "lora", "lora_rank": 4}
HALF: dict[str, Any] = {"trainable": "full", "dtype": "bfloat16"}
ELSEWHERE = {1: {"what": "elsewhere"}}
READERS = [(1, 1), (2, 1), (4, 1), (4, 2), (2, 2)]


def config_of(folder: Path, ranks: int, replicas: int, *, dtype: str = "float32", **training: Any) -> JobConfig:
    wanted = {"ranks": ranks, "replicas": replicas, "update_batch": 2, "timestep_width": 2, **training}
    return job_config(folder, model={"dtype": dtype}, training=wanted)


def save(on: Bench, *, final: bool = False) -> Path:
    task = CheckpointTask(job=JOB, incarnation=0, version=3, global_step=3, final=final)
    result = on.engine.run(task, on.context)
    assert isinstance(result, CheckpointResult)
    return Path(result.path)


def values(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    parts = (checkpoint.weights, checkpoint.optimizer, checkpoint.averages, checkpoint.masters)
    return {
        f"{kind} {name}": each.whole() for kind, part in zip(KINDS, parts, strict=True) for name, each in part.items()
    }


def tensor_bytes(folder: Path) -> dict[str, tuple[object, bytes]]:
    """Of every file what its header says (safetensors writes metadata in any order), and the bytes after it."""
    found: dict[str, tuple[object, bytes]] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        found[path.name] = json.loads(content[8:start]), content[start:]
    return found


@pytest.mark.parametrize(
    ("training", "ranks", "replicas"),
    [(FULL, 3, 1), (FULL, 4, 2), (HALF, 4, 1), (LORA, 2, 1)],
    ids=["full-3", "full-2x2", "half-4", "lora-2"],
)
def test_shards_are_written_by_their_ranks_and_read_by_any(
    crew: Crew,
    flux_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    training: dict[str, Any],
    ranks: int,
    replicas: int,
) -> None:
    config, shards = config_of(flux_folder, ranks, replicas, **training), ranks // replicas
    on = crew.bench(config)
    global_steps(on, range(3))
    trained = published(on.context)
    sliced = shutil.copytree(save(on), tmp_path / "run" / "checkpoints" / "step-000003")
    assert crew.leave(on) == ["left"] * (ranks - 1)
    for kind in ("weights", "optimizer"):
        assert len(tensor_files(kind, [path.name for path in sliced.iterdir()])) == shards
        parts = [(sliced / tensor_file(kind, number, shards)).stat().st_size for number in range(1, shards + 1)]
        assert max(parts) < 2 * min(parts), f"{kind} are not dealt"
    apart = crew.bench(config, orders=ELSEWHERE, checkpoint=str(sliced), version=3)
    assert same(published(apart.context), trained)
    whole = shutil.copytree(save(apart), tmp_path / "whole")
    assert crew.leave(apart) == ["left"] * (ranks - 1)
    assert tensor_bytes(whole).keys() <= {tensor_file(kind, 1, 1) for kind in KINDS}
    assert same(values(read_checkpoint(sliced)), values(read_checkpoint(whole)))
    assert_own_rows_are_read(monkeypatch)
    for size, copies in READERS:
        for path in (sliced, whole):
            reader = crew.bench(config_of(flux_folder, size, copies, **training), checkpoint=str(path), version=3)
            assert same(published(reader.context), trained)
            again = read_checkpoint(save(reader))
            assert same(values(again), values(read_checkpoint(whole))), f"{path.name} read by {size} ranks"
            assert crew.leave(reader) == ["left"] * (size - 1)
    assert_exported_alike(config, sliced, whole, tmp_path)


def assert_own_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on rank 0 hands no shards to the others."""

    def refuse(*_: object) -> None:
        raise AssertionError("rank 0 sends what each rank can read")

    monkeypatch.setattr(sharded, "_scattered", refuse)


def assert_exported_alike(config: JobConfig, sliced: Path, whole: Path, tmp_path: Path) -> None:
    run, folder = sliced.parents[1], tmp_path / "exported"
    (run / "job.toml").write_text(resolved_toml(config), "utf-8")
    ema = config.training.ema_decay is not None
    found = []
    for path in (sliced, whole):
        if path is whole:
            shutil.rmtree(sliced)
            whole.rename(sliced)
        export(run, folder, global_step=3, ema=ema, merge=False)
        found.append(tensor_bytes(folder))
        shutil.rmtree(folder)
    assert found[0] == found[1]


def test_the_last_one_has_the_pipeline_of_one_rank(crew: Crew, flux_folder: Path, tmp_path: Path) -> None:
    on = crew.bench(config_of(flux_folder, 2, 1, **FULL))
    global_steps(on, range(3))
    sliced = shutil.copytree(save(on, final=True), tmp_path / "sliced")
    assert crew.leave(on) == ["left"]
    one = crew.bench(config_of(flux_folder, 1, 1, **FULL), checkpoint=str(sliced), version=3)
    alone = save(one, final=True)
    assert tensor_bytes(alone / "pipeline") == tensor_bytes(sliced / "pipeline")


def test_a_damaged_slice_is_named_whoever_finds_it(crew: Crew, flux_folder: Path, tmp_path: Path) -> None:
    config = config_of(flux_folder, 2, 1, **FULL)
    on = crew.bench(config)
    global_steps(on, range(3))
    folder = save(on)
    assert crew.leave(on) == ["left"]
    for name in sorted(path.name for path in folder.glob("*.safetensors")):
        damaged = shutil.copytree(folder, tmp_path / name)
        content = bytearray((damaged / name).read_bytes())
        content[-1] ^= 1
        (damaged / name).write_bytes(content)
        engine = crew.form(2, 1)
        with pytest.raises(TaskFault, match=f"{name} differs from its digest") as fault:
            engine.run(prepare_task(config, str(damaged), 3), MemoryContext())
        assert fault.value.error.reason == "checkpoint"
        engine.leave()
        assert crew.answers() == ["left"]


def test_a_rank_without_room_leaves_no_checkpoint(crew: Crew, flux_folder: Path) -> None:
    on = crew.bench(config_of(flux_folder, 4, 1, **FULL), orders={2: {"what": "full"}})
    global_steps(on, range(3))
    shutil.rmtree(crew.root / "runs" / JOB, ignore_errors=True)
    for _ in range(2):
        with pytest.raises(TaskFault, match=r"rank 2: .* cannot be written: .*No space left") as fault:
            save(on)
        assert (fault.value.error.reason, fault.value.error.retry) == ("checkpoint", True)
        assert f"Errno {errno.ENOSPC}" in str(fault.value)
        assert not list((crew.root / "runs" / JOB / "checkpoints").iterdir())
    global_steps(on, [3])
    assert crew.leave(on) == ["left"] * 3, "the ranks are in step"


def test_a_rank_that_is_killed_while_it_writes_leaves_no_checkpoint(crew: Crew, flux_folder: Path) -> None:
    on = crew.bench(config_of(flux_folder, 2, 1, **FULL), orders={1: {"what": "killed"}})
    global_steps(on, range(3))
    shutil.rmtree(crew.root / "runs" / JOB, ignore_errors=True)

    def tell() -> None:
        """As the driver does, which sees a process end."""
        crew.followers[0].process.wait()
        on.engine.leave()

    told = threading.Thread(target=tell)
    told.start()
    with pytest.raises(TaskFault) as fault:
        save(on)
    told.join()
    assert fault.value.error.reason == "rank_lost"
    assert crew.answers() == ["dead"]
    assert not list((crew.root / "runs" / JOB / "checkpoints").iterdir())
