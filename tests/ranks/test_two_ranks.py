"""Two ranks are one trainer: equal weights, checkpoints for any number of ranks, errors of one that are of all."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.config.job import JobConfig, SamplingConfig
from digend.engines.arrays import to_tensor
from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.ranks import Ranks
from digend.wire.tasks import CheckpointResult, CheckpointTask, GenerateTask
from digend.wire.tensors import Array
from tests.engines.world import JOB, NUM_PAIRS, Bench, MemoryContext, T, job_config, prepare_task, same
from tests.families import FAMILIES
from tests.ranks.crew import LARGEST_IN_DOUBLE, Crew, distance, global_steps, micro_batches, published
from tests.ranks.doubles import throughout_in

EMA = {"ema_decay": 0.5, "ema_interval": 1}
FULL = {"trainable": "full", **EMA}
LORA = {"trainable": "lora", "lora_rank": 4}


def config_of(folder: Path, ranks: int, **training: object) -> JobConfig:
    wanted = {"ranks": ranks, "update_batch": 2, "timestep_width": 2, **training}
    return job_config(folder, model={"dtype": "float64"}, training=wanted)


def checkpoint(on: Bench, step: int, *, final: bool = False) -> CheckpointResult:
    task = CheckpointTask(job=JOB, incarnation=0, version=step, global_step=step, final=final)
    result = on.engine.run(task, on.context)
    assert isinstance(result, CheckpointResult)
    return result


@pytest.mark.parametrize("training", [FULL, LORA], ids=["full", "lora"])
def test_weights_checkpoint_and_resume(crew: Crew, flux_folder: Path, training: dict[str, object]) -> None:
    """A step on one rank, the next on two from its checkpoint, the last on one again."""
    one = crew.bench(config_of(flux_folder, 1, **training))
    global_steps(one, [0])
    path = checkpoint(one, 1).path
    first = published(one.context)
    global_steps(one, [1, 2])
    two = crew.bench(config_of(flux_folder, 2, **training), checkpoint=path, version=1)
    assert two.engine.applied(JOB) == (1, 1, ())
    assert same(first, published(two.context))
    two.context.stages.clear()
    global_steps(two, [1])
    assert "gather" in two.context.stages
    written = checkpoint(two, 2, final=True)
    assert crew.leave(two) == ["left"]
    again = crew.bench(config_of(flux_folder, 1, **training), checkpoint=written.path, version=2)
    global_steps(again, [2])
    assert distance(published(one.context), published(again.context)) <= LARGEST_IN_DOUBLE
    assert written.pipeline is not None
    assert (Path(written.pipeline) / "model_index.json").exists()


@pytest.mark.parametrize("training", [{**FULL, "reshard": False}, LORA], ids=["full, gradients held back", "lora"])
def test_an_error_of_one_rank_leaves_the_gradient_of_all(
    crew: Crew, flux_folder: Path, training: dict[str, object]
) -> None:
    one = crew.bench(config_of(flux_folder, 1, **training))
    global_steps(one, [0])
    two = crew.bench(config_of(flux_folder, 2, **training))
    first, second = micro_batches(two, 0)
    two.update(first)
    bad = [*second[:2], replace(second[2], advantage=float("nan"))]
    with pytest.raises(TaskFault, match=r"p1/2 at timestep \d is not finite") as fault:
        two.update(bad, micro_batch=1)
    assert fault.value.error.reason == "non_finite"
    two.context.cancel_at = len(two.context.steps) + 2
    with pytest.raises(Cancelled):
        two.update(second, micro_batch=1)
    two.context.cancel_at = None
    two.context.lost.add(second[0].trajectory.id)
    with pytest.raises(TaskFault, match="does not hold"):
        two.update(second, micro_batch=1)
    two.context.lost.clear()
    assert two.engine.applied(JOB) == (0, 0, (0,))
    two.update(second, micro_batch=1)
    two.commit(micro_batches=(0, 1), z=NUM_PAIRS)
    assert distance(published(one.context), published(two.context)) <= LARGEST_IN_DOUBLE
    assert crew.leave(two) == ["left"]


def test_two_transformers_in_shards(crew: Crew, tmp_path: Path) -> None:
    """In each pass both ranks run the same one: of 6 pairs at high noise and 3 at low a rank pads at the latter."""
    family = FAMILIES["wan22"]
    folder = family.build(tmp_path / "wan22")
    weights = []
    for ranks in (1, 2):
        tables = family.tables(
            model={"dtype": "float64"},
            schedule={"scoring": "dedicated", "decode": "reward"},
            sampling={"num_timesteps": T},
            training={"trainable": "full", "ranks": ranks, "update_batch": 2, "timestep_width": 1},
        )
        with throughout_in("float64"):
            on = crew.bench(job_config(folder, **tables), orders={1: {"throughout": "float64"}})
            on.update(micro_batches(on, 0)[0])
            on.commit(micro_batches=(0,), z=NUM_PAIRS // 2)
        weights.append(published(on.context))
        assert crew.leave(on) == ["left"] * (ranks - 1)
    assert any(name.startswith("transformer_2/") for name in weights[0])
    assert distance(*weights) <= LARGEST_IN_DOUBLE


@pytest.mark.parametrize("training", [FULL, LORA], ids=["full", "lora"])
def test_each_rank_offloads_its_part_for_tag(crew: Crew, flux_folder: Path, training: dict[str, object]) -> None:
    one = crew.bench(config_of(flux_folder, 1, **training))
    global_steps(one, [0, 1])
    config = config_of(flux_folder, 2, **training)
    checked = config.schedule.model_copy(update={"tag_checksums": True})
    two = crew.bench(config.model_copy(update={"schedule": checked}))
    assert two.engine._offloading is not None
    for step in (0, 1):
        for number, items in enumerate(micro_batches(two, step)):
            two.generate(replace(two.generate_task(version=step, step=step), assist=True, offload=True))
            assert (two.engine._offloading.away > 0) is bool(step or number or training is FULL)
            two.update(items, micro_batch=number, step=step)
        two.commit(version=step, step=step, micro_batches=(0, 1), z=NUM_PAIRS)
    assert distance(published(one.context), published(two.context)) <= LARGEST_IN_DOUBLE
    assert crew.leave(two) == ["left"]


@pytest.mark.parametrize("training", [FULL, LORA], ids=["full", "lora"])
def test_each_rank_draws_a_part_of_a_rollout(crew: Crew, flux_folder: Path, training: dict[str, object]) -> None:
    """Six samples in forward batches of two: rank 0 draws one and, to go on with rank 1, another that is dropped."""
    drawn: list[dict[str, Array]] = []
    averaged: list[dict[str, Array]] = []
    for ranks in (1, 2):
        config = config_of(flux_folder, ranks, **{**training, **EMA})
        on = crew.bench(config.model_copy(update={"sampling": in_batches_of(2, config)}))
        with counted_passes(on) as passes:
            drawn.append(new_tensors(on, on.generate_task()))
        assert passes.count(2) == T * (3 if ranks == 1 else 2)
        global_steps(on, [0])
        averaged.append(new_tensors(on, replace(on.generate_task(version=1, step=1), purpose="evaluate")))
        assert crew.leave(on) == ["left"] * (ranks - 1)
    alone, both = ({name: bytes(each.data) for name, each in part.items()} for part in drawn)
    assert len(alone) == 6 * 3, "latents, log-probs and pixels"
    assert (list(both), both) == (list(alone), alone)
    assert list(averaged[0]) == list(averaged[1])
    assert all(apart(averaged[0][name], averaged[1][name]) <= 1 for name in averaged[0]), "a step differs in last bits"


def in_batches_of(size: int, config: JobConfig) -> SamplingConfig:
    return config.sampling.model_copy(update={"rollout_batch": size})


def new_tensors(on: Bench, task: GenerateTask) -> dict[str, Array]:
    """What a rollout serves, in its order."""
    seen = len(on.context.blobs)
    assert on.generate(task).num_samples == 6
    return {name: each for blob in list(on.context.blobs.values())[seen:] for name, each in blob.items()}


def apart(left: Array, right: Array) -> float:
    return float((to_tensor(left).double() - to_tensor(right).double()).abs().max())


@contextmanager
def counted_passes(on: Bench) -> Iterator[list[int]]:
    """Sizes of rank 0's forward passes."""
    assert on.engine._job is not None
    model, passes = on.engine._job.model, list[int]()
    plain = model.velocity

    def counting(latents: torch.Tensor, *rest: Any) -> torch.Tensor:
        passes.append(len(latents))
        return plain(latents, *rest)

    model.velocity = counting  # type: ignore[assignment, method-assign]
    try:
        yield passes
    finally:
        model.velocity = plain  # type: ignore[method-assign]


def test_a_sample_that_is_not_finite_on_one_rank_is_everybodys_error(crew: Crew, flux_folder: Path) -> None:
    on = crew.bench(config_of(flux_folder, 2, **LORA), orders={1: {"what": "spoil"}})
    with pytest.raises(TaskFault) as fault:
        on.generate(on.generate_task())
    assert (fault.value.error.reason, "rank 1: latents of sample" in fault.value.error.message) == ("non_finite", True)
    assert on.generate(replace(on.generate_task(), groups=tuple(on.groups()[:1]))).num_samples == 3, "alone"
    assert crew.leave(on) == ["left"]


def test_sums_are_those_of_one_rank(crew: Crew, flux_folder: Path) -> None:
    results = []
    for ranks in (1, 2):
        on = crew.bench(config_of(flux_folder, ranks, **LORA))
        results.append(on.update(micro_batches(on, 0)[0]))
        flops = on.context.flops
        assert flops > 0
        results.append(replace(results.pop(), rejected=int(flops)))
        assert crew.leave(on) == ["left"] * (ranks - 1)
    alone, both = results
    assert (both.num_pairs, both.clipped, both.rejected) == (alone.num_pairs, alone.clipped, alone.rejected)
    assert both.loss_sum == pytest.approx(alone.loss_sum, abs=1e-12)
    assert [each.index for each in both.sample_drift] == [each.index for each in alone.sample_drift]


def test_a_base_that_is_not_there_is_everybodys_error(crew: Crew, tmp_path: Path) -> None:
    engine = crew.form(2, 1)
    with pytest.raises(TaskFault) as fault:
        engine.run(prepare_task(config_of(tmp_path, 2)), MemoryContext())
    assert fault.value.error.reason == "model"
    engine.leave()
    assert crew.answers() == ["left"]


def test_errors_before_and_after_the_passes_leave_the_ranks_together(crew: Crew, flux_folder: Path) -> None:
    on = crew.bench(config_of(flux_folder, 2, **LORA))
    with pytest.raises(TaskFault) as fault:
        on.commit(micro_batches=(0,))
    assert fault.value.error.reason == "applied"
    global_steps(on, [0])
    on.engine._runs_dir = flux_folder / "model_index.json"
    with pytest.raises(TaskFault) as fault:
        checkpoint(on, 1)
    assert fault.value.error.reason == "checkpoint"
    on.engine._runs_dir = crew.root / "runs"
    assert checkpoint(on, 1).digest
    assert crew.leave(on) == ["left"]


def test_leaving_from_another_thread_ends_what_a_follower_waits_for(crew: Crew) -> None:
    engine = crew.form(2, 2, orders={1: {"what": "leave"}})
    assert crew.answers() == ["rank_lost: rank 1 was told to leave"]
    engine.leave()


def test_a_rank_that_is_told_to_stop_is_lost_to_the_others(crew: Crew, flux_folder: Path) -> None:
    on = crew.bench(config_of(flux_folder, 2, **LORA), orders={1: {"what": "cancel", "at": 2}})
    with pytest.raises(TaskFault) as fault:
        on.update(micro_batches(on, 0)[0])
    assert fault.value.error.reason == "rank_lost"
    assert crew.answers() == ["cancelled"]
    with pytest.raises(TaskFault, match="no longer together"):
        on.commit()
    on.engine.leave()


def test_a_rank_that_stops_is_given_up_in_time_and_nobody_hangs(crew: Crew, flux_folder: Path) -> None:
    engine = crew.form(2, 2, timeout_s=3.0)
    pid = crew.followers[0].process.pid
    time.sleep(0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(TaskFault) as fault:
            engine.run(prepare_task(config_of(flux_folder, 2, **LORA)), MemoryContext())
        assert fault.value.error.reason == "rank_lost"
        assert time.monotonic() - began < 10
        began = time.monotonic()
        engine.leave()
        assert time.monotonic() - began < 1
    finally:
        os.kill(pid, signal.SIGCONT)
    assert crew.answers()[0].startswith("rank_lost")


def test_ranks_that_do_not_come_are_not_awaited(crew: Crew) -> None:
    engine = crew.form(1, 1)
    ranks = Ranks(epoch=1, rank=0, size=2, replicas=1, store=engine.open_store("127.0.0.1"), timeout_s=1.0)
    with pytest.raises(TaskFault, match="has not met the others") as fault:
        engine.join(ranks)
    assert fault.value.error.reason == "rank_lost"
    engine.leave()
    assert not torch.distributed.is_initialized()
    crew.form(2, 2, timeout_s=20.0).leave()
    assert crew.answers() == ["left"], "the process has counted its groups anew"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_meeting_that_one_does_not_come_to_ends_when_told(crew: Crew, rank: int) -> None:
    """The others of rank 0 wait in the store; a rank whose store is gone with its process waits for that."""
    engine = crew.form(1, 1)
    place = engine.open_store("127.0.0.1") if rank == 0 else free_address()
    leaving = threading.Timer(0.3, engine.leave)
    leaving.start()
    began = time.monotonic()
    with pytest.raises(TaskFault, match="told to leave") as fault:
        engine.join(Ranks(epoch=1, rank=rank, size=3, replicas=3, store=place, timeout_s=200.0))
    leaving.join()
    assert time.monotonic() - began < 20
    assert fault.value.error.reason == "rank_lost"
    assert ("not there: rank 1, 2" in fault.value.error.message) == (rank == 0)
    assert not torch.distributed.is_initialized()


def free_address() -> str:
    """Where nobody listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"
