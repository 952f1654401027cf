"""Five families in every layout: the weights of one rank, its gradient, and what a killed rank leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.config.job import JobConfig
from digend.engines.protocols import TaskFault
from digend.wire.tasks import CheckpointResult, CheckpointTask, GenerateResult
from tests.engines.world import JOB, job_config
from tests.families import FAMILIES, folders_in
from tests.ranks.crew import (
    LARGEST_IN_DOUBLE,
    Crew,
    distance,
    global_steps,
    micro_batches,
    published,
)
from tests.ranks.doubles import throughout_in

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

LARGEST_GRADIENT = 1e-6
"""Of the gradient's norm, in float32."""
LAYOUTS = [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
"""Ranks and replicas: shards, copies, and both (HSDP)."""
FAMILY_NAMES = ("flux", "sd3", "qwen_image", "wan", "wan22")
UNDECODED = {"scoring": "dedicated", "decode": "reward"}

Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return folders_in(tmp_path_factory.mktemp)


@dataclass(frozen=True)
class Subject:
    """A family trained in full or as an adapter, and what one rank makes of it."""

    family: str
    folder: Path
    trainable: str

    def config(self, dtype: str, ranks: int = 1, replicas: int | None = None, **training: Any) -> JobConfig:
        wanted = {
            "trainable": self.trainable,
            "lora_rank": 4,
            "update_batch": 2,
            "timestep_width": 2,
            "ranks": ranks,
            "replicas": replicas,
            **training,
        }
        tables = FAMILIES[self.family].tables(
            model={"dtype": dtype}, training=wanted, schedule=UNDECODED, sampling={"num_timesteps": 5}
        )
        return job_config(self.folder, **tables)


def saved(on: Any, step: int) -> str:
    result = on.engine.run(CheckpointTask(job=JOB, incarnation=0, version=step, global_step=step), on.context)
    assert isinstance(result, CheckpointResult)
    return result.path


def next_gradient(
    crew: Crew, config: JobConfig, path: str, tmp_path: Path, *, drawn: list[Any] | None = None
) -> tuple[dict[str, torch.Tensor], list[Any]]:
    """Of the fourth global step at the weights of a checkpoint; and its micro-batches with their blobs."""
    ranks, replicas = config.training.ranks, config.training.num_replicas
    files = [tmp_path / f"{crew.epoch}-{rank}.safetensors" for rank in range(1, ranks)]
    orders = {rank: {"gradients": str(file)} for rank, file in enumerate(files, start=1)}
    on = crew.bench(config, orders=orders, checkpoint=path, version=3)
    if drawn is None:
        drawn = [micro_batches(on, 3), on.context.blobs]
    on.context.blobs |= drawn[1]
    for number, items in enumerate(drawn[0]):
        on.update(items, micro_batch=number, step=3)
    assert crew.leave(on) == ["left"] * (ranks - 1)
    return crew.gradient(on, files, ranks // replicas), drawn


@pytest.fixture(scope="module", params=product(FAMILY_NAMES, ("full", "lora")), ids="-".join)
def subject(request: pytest.FixtureRequest, folders: Folders) -> Subject:
    family, trainable = request.param
    return Subject(family, folders(family), trainable)


def test_three_global_steps_in_double(crew: Crew, subject: Subject) -> None:
    orders = {rank: {"throughout": "float64"} for rank in range(1, 4)}
    with throughout_in("float64"):
        one = crew.bench(subject.config("float64"))
        global_steps(one, range(3))
        for ranks, replicas in LAYOUTS:
            on = crew.bench(subject.config("float64", ranks, replicas), orders=orders)
            global_steps(on, range(3))
            found = distance(published(one.context), published(on.context))
            what = f"{subject.family} {subject.trainable} {ranks} ranks, {replicas} replicas"
            print(f"{what}: weights differ by {found:.1e}")
            assert found <= LARGEST_IN_DOUBLE
            assert crew.leave(on) == ["left"] * (ranks - 1)


def test_gradient_after_three_global_steps_in_single(crew: Crew, subject: Subject, tmp_path: Path) -> None:
    one = crew.bench(subject.config("float32"))
    global_steps(one, range(3))
    path = saved(one, 3)
    wanted, drawn = next_gradient(crew, subject.config("float32"), path, tmp_path)
    norm = float(torch.cat([each.flatten() for each in wanted.values()]).norm())
    for ranks, replicas in LAYOUTS:
        found, _ = next_gradient(crew, subject.config("float32", ranks, replicas), path, tmp_path, drawn=drawn)
        off = float(torch.cat([(found[name] - wanted[name]).flatten() for name in wanted]).norm())
        print(f"{subject.family} {subject.trainable} {ranks} ranks, {replicas} replicas: {off / norm:.1e} of the norm")
        assert found.keys() == wanted.keys()
        assert off <= LARGEST_GRADIENT * norm


@pytest.mark.parametrize(("ranks", "replicas"), [(2, 1), (4, 2)])
@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"reshard": False}},
        {"training": {"gradient_checkpointing": True}},
        {"model": {"memory": {"compile_blocks": "eager"}}},
        {"training": {"ema_decay": 0.5, "ema_interval": 1}},
        {"algorithm": {"options": {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}}},
        {"algorithm": {"name": "diffusion_nft", "options": {}}},
    ],
    ids=["reshard-off", "gradient-checkpointing", "compiled", "ema", "kl", "diffusion-nft"],
)
def test_options_in_shards(crew: Crew, folders: Folders, ranks: int, replicas: int, changes: dict[str, Any]) -> None:
    weights = []
    for size, copies in ((1, 1), (ranks, replicas)):
        training = {**changes.get("training", {}), "ranks": size, "replicas": copies, "update_batch": 2}
        tables = {**changes, "training": training, "schedule": UNDECODED}
        tables["model"] = {"dtype": "float64", **changes.get("model", {})}
        on = crew.bench(job_config(folders("flux"), **tables))
        global_steps(on, range(3))
        task = on.generate_task(version=3, step=3)
        evaluated = on.engine.run(task.__class__(**{**_fields(task), "purpose": "evaluate"}), on.context)
        assert isinstance(evaluated, GenerateResult)
        global_steps(on, [3])
        weights.append(published(on.context))
        assert crew.leave(on) == ["left"] * (size - 1)
    assert distance(*weights) <= LARGEST_IN_DOUBLE


def _fields(task: Any) -> dict[str, Any]:
    return {name: getattr(task, name) for name in task.__dataclass_fields__}


@pytest.mark.parametrize(
    ("family", "trainable", "replicas"),
    [
        ("flux", "full", 1),
        ("flux", "lora", 2),
        ("flux", "lora", 1),
        ("wan", "full", 1),
        ("wan", "lora", 1),
        ("wan22", "full", 1),
        ("wan22", "lora", 1),
    ],
)
def test_half_precision(crew: Crew, folders: Folders, family: str, trainable: str, replicas: int) -> None:
    """bfloat16 rounds each pass's gradient, so weights agree to what three steps of Adam can move them."""
    subject = Subject(family, folders(family), trainable)
    weights = []
    for ranks, copies in ((1, None), (2, replicas)):
        on = crew.bench(subject.config("bfloat16", ranks, copies, learning_rate=1e-4))
        global_steps(on, range(3))
        weights.append(published(on.context))
        assert crew.leave(on) == ["left"] * (ranks - 1)
    assert distance(*weights) <= 1e-2


@pytest.mark.parametrize("trainable", ["full", "lora"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_killed_in_mid_accumulation_costs_no_step(
    crew: Crew, folders: Folders, trainable: str, size: int
) -> None:
    """It dies in the second micro-batch of the second global step; a new one goes on from the checkpoint."""
    subject = Subject("flux", folders("flux"), trainable)
    one = crew.bench(subject.config("float64"))
    global_steps(one, range(3))
    config = subject.config("float64", size)
    on = crew.bench(config)
    global_steps(on, [0])
    path = saved(on, 1)
    assert crew.leave(on) == ["left"] * (size - 1)
    on = crew.bench(config, orders={size - 1: {"what": "die", "at": _calls(size)}}, checkpoint=path, version=1)
    first, second = micro_batches(on, 1)
    on.update(first, step=1)
    with pytest.raises(TaskFault) as fault:
        on.update(second, micro_batch=1, step=1)
    assert fault.value.error.reason == "rank_lost"
    on.engine.leave()
    answers = crew.answers()
    assert answers[-1] == "dead"
    assert all(answer.startswith("rank_lost") for answer in answers[:-1])
    again = crew.bench(config, checkpoint=path, version=1)
    assert again.engine.applied(JOB) == (1, 1, ())
    global_steps(again, [1, 2])
    assert distance(published(one.context), published(again.context)) <= LARGEST_IN_DOUBLE
    assert crew.leave(again) == ["left"] * (size - 1)


def _calls(size: int) -> int:
    """Progress calls up to the first pass of the second micro-batch: each rank draws one batch of five timesteps; its
    share of a micro-batch's 9 pairs is two passes of two ranks, one of four."""
    return 5 + (2 if size == 2 else 1) + 1
