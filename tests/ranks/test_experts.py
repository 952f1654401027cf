"""Two transformers in shards: whatever pairs each of them gets, ranks run the same one in the same pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digend.config.job import JobConfig
from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.tasks import CheckpointResult, CheckpointTask, GroupRequest, UpdateItem
from tests.engines.world import JOB, Bench, T, job_config
from tests.families import FAMILIES, folders_in
from tests.ranks.crew import LARGEST_IN_DOUBLE, Crew, distance, global_steps, micro_batches, published
from tests.ranks.doubles import throughout_in

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

HIGH, LOW = (0, 1), (2, 3)
"""Timesteps of five on either side of the boundary."""
LAYOUTS = [(2, 1), (4, 2)]
ORDERS = {rank: {"throughout": "float64"} for rank in range(1, 4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders_in(tmp_path_factory.mktemp)("wan22")


Config = Callable[..., JobConfig]


@pytest.fixture
def config(folder: Path) -> Config:
    def made(ranks: int, replicas: int, training: Mapping[str, Any], **changes: Mapping[str, Any]) -> JobConfig:
        wanted = {"update_batch": 2, "timestep_width": 2, **training, "ranks": ranks, "replicas": replicas}
        tables = FAMILIES["wan22"].tables(
            model={"dtype": "float64"},
            schedule={"scoring": "dedicated", "decode": "reward"},
            sampling={"num_timesteps": T},
            training=wanted,
            **changes,
        )
        return job_config(folder, **tables)

    return made


@pytest.mark.parametrize(("ranks", "replicas"), LAYOUTS)
@pytest.mark.parametrize(
    ("training", "algorithm"),
    [
        ({"trainable": "full", "reshard": False, "ema_decay": 0.5, "ema_interval": 1}, {}),
        ({"trainable": "full", "gradient_checkpointing": True}, {}),
        ({"trainable": "full"}, {"options": {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}}),
        ({"lora_rank": 4}, {"options": {"window_size": 3, "window_range": [0, 3], "kl_coefficient": 0.1}}),
        ({"lora_rank": 4}, {"name": "diffusion_nft", "options": {}}),
    ],
    ids=["reshard-off", "gradient-checkpointing", "full-kl", "lora-kl", "lora-nft"],
)
def test_options(
    crew: Crew, config: Config, ranks: int, replicas: int, training: dict[str, Any], algorithm: dict[str, Any]
) -> None:
    weights = []
    with throughout_in("float64"):
        for size, copies in ((1, 1), (ranks, replicas)):
            on = crew.bench(config(size, copies, training, algorithm=algorithm), orders=ORDERS)
            global_steps(on, range(2))
            on.generate(replace(on.generate_task(version=2, step=2), purpose="evaluate"))
            global_steps(on, [2])
            weights.append(published(on.context))
            assert crew.leave(on) == ["left"] * (size - 1)
    assert distance(*weights) <= LARGEST_IN_DOUBLE


def trained(on: Bench, step: int, timesteps: Sequence[Sequence[int]]) -> list[list[UpdateItem]]:
    """A micro-batch a prompt, of which these timesteps are trained; of its last sample one of them."""

    def asked(group: GroupRequest, wanted: Sequence[int]) -> GroupRequest:
        *first, last = group.samples
        return replace(
            group,
            levels=tuple(0.7 if index in (*HIGH, *LOW) else 0.0 for index in range(T)),
            samples=(
                *(replace(each, timesteps=tuple(wanted)) for each in first),
                replace(last, timesteps=tuple(wanted[-1:])),
            ),
        )

    groups = [asked(group, wanted) for group, wanted in zip(on.groups(step), timesteps, strict=True)]
    items = on.items(groups, on.generate(on.generate_task(version=step, step=step, groups=groups)))
    return [[item for item in items if item.prompt == group.prompt] for group in groups]


UNEVEN = [(HIGH, HIGH), (HIGH, LOW), ((0, 2), (1, 2, 3)), (LOW, LOW)]
"""By global step and micro-batch: a whole step without the second expert, micro-batches of one each, both."""


def uneven_steps(on: Bench, steps: Sequence[int]) -> None:
    for step in steps:
        pairs = 0
        for number, items in enumerate(trained(on, step, UNEVEN[step])):
            on.update(items, micro_batch=number, step=step)
            pairs += sum(len(item.timesteps) for item in items)
        assert on.commit(version=step, step=step, micro_batches=(0, 1), z=pairs).weights is not None


@pytest.mark.parametrize(("ranks", "replicas"), LAYOUTS)
@pytest.mark.parametrize(
    "training", [{"trainable": "full"}, {"trainable": "full", "reshard": False}, {"lora_rank": 4}], ids=str
)
def test_an_expert_that_gets_no_pair(
    crew: Crew, config: Config, ranks: int, replicas: int, training: dict[str, Any]
) -> None:
    """Of a micro-batch, or of a whole global step, after which its optimizer state is not there to be saved."""
    with throughout_in("float64"):
        one = crew.bench(config(1, 1, training))
        uneven_steps(one, range(4))
        on = crew.bench(config(ranks, replicas, training), orders=ORDERS)
        uneven_steps(on, [0])
        saved = on.engine.run(CheckpointTask(job=JOB, incarnation=0, version=1, global_step=1), on.context)
        assert isinstance(saved, CheckpointResult)
        uneven_steps(on, range(1, 4))
        assert distance(published(one.context), published(on.context)) <= LARGEST_IN_DOUBLE
        assert crew.leave(on) == ["left"] * (ranks - 1)
        again = crew.bench(config(2, 1, training), orders=ORDERS, checkpoint=saved.path, version=1)
        uneven_steps(again, range(1, 4))
        assert distance(published(one.context), published(again.context)) <= LARGEST_IN_DOUBLE
        assert crew.leave(again) == ["left"]


@pytest.mark.parametrize("reshard", [True, False])
def test_an_error_leaves_the_gradient_of_both_experts(crew: Crew, config: Config, reshard: bool) -> None:
    """In passes of one pair, so that FSDP holds some back: of the first expert, then of the second."""
    training = {"trainable": "full", "reshard": reshard, "update_batch": 1, "timestep_width": 1}
    with throughout_in("float64"):
        one = crew.bench(config(1, 1, training))
        global_steps(one, [0])
        on = crew.bench(config(2, 1, training), orders=ORDERS)
        first, second = micro_batches(on, 0)
        on.update(first)
        bad = [*second[:2], replace(second[2], advantage=float("nan"))]
        with pytest.raises(TaskFault, match="is not finite"):
            on.update(bad, micro_batch=1)
        for calls in (2, 4):
            on.context.cancel_at = len(on.context.steps) + calls
            with pytest.raises(Cancelled):
                on.update(second, micro_batch=1)
        on.context.cancel_at = None
        on.update(second, micro_batch=1)
        on.commit(micro_batches=(0, 1))
        assert distance(published(one.context), published(on.context)) <= LARGEST_IN_DOUBLE
        assert crew.leave(on) == ["left"]


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_the_final_checkpoint_holds_both(crew: Crew, config: Config, trainable: str, tmp_path: Path) -> None:
    on = crew.bench(config(2, 1, {"trainable": trainable, "lora_rank": 4}))
    global_steps(on, [0])
    task = CheckpointTask(job=JOB, incarnation=0, version=1, global_step=1, final=True)
    saved = on.engine.run(task, on.context)
    assert isinstance(saved, CheckpointResult)
    assert saved.pipeline is not None
    for name in ("transformer", "transformer_2"):
        assert list((Path(saved.pipeline) / name).glob("*.safetensors"))
    assert crew.leave(on) == ["left"]
