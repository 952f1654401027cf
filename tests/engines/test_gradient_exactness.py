"""However a global step is cut, the float64 gradient is that of one sequential pass; TAG leaves it alone."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from digend.wire.tasks import GroupRequest, UpdateItem
from tests.engines.world import WINDOW, Bench, bench, job_config, same

LARGEST = 1e-10
Cut = Callable[[Bench], list[list[UpdateItem]]]


def roll(on: Bench, groups: Sequence[GroupRequest]) -> list[UpdateItem]:
    """One fragment."""
    return on.items(groups, on.generate(on.generate_task(groups=groups)))


def part(group: GroupRequest, *indices: int) -> GroupRequest:
    return GroupRequest(
        prompt=group.prompt,
        condition=group.condition,
        levels=group.levels,
        samples=tuple(group.samples[index] for index in indices),
    )


def naive(on: Bench) -> list[list[UpdateItem]]:
    """B = 1: everything is one micro-batch, one fragment."""
    return [roll(on, on.groups())]


def whole_groups(on: Bench) -> list[list[UpdateItem]]:
    """`batch`: a micro-batch is a group, wholly on one worker."""
    return [roll(on, [group]) for group in on.groups()]


def gap(on: Bench) -> list[list[UpdateItem]]:
    """GAP: the samples of a group are spread over two workers, unevenly, and arrive out of order."""
    return [roll(on, [part(group, 2)]) + roll(on, [part(group, 0, 1)]) for group in on.groups()]


def gradient_of(
    folder: Path,
    root: Path,
    cut: Cut,
    order: Sequence[int] = (),
    algorithm: Mapping[str, object] = MappingProxyType({}),
    **training: object,
) -> dict[str, torch.Tensor]:
    config = job_config(folder, model={"dtype": "float64"}, training=training, algorithm=algorithm)
    on = bench("trainer", config, root)
    micro_batches = cut(on)
    numbers = order or range(len(micro_batches))
    num_pairs = sum(on.update(micro_batches[number], micro_batch=number).num_pairs for number in numbers)
    assert num_pairs == len(WINDOW) * sum(len(micro_batches[number]) for number in numbers)
    return {name: grad for name, grad in on.gradient().items() if grad is not None}


@pytest.fixture(scope="module")
def sequential(flux_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    root = tmp_path_factory.mktemp("sequential")
    gradient = gradient_of(flux_folder, root, naive, update_batch=1, timestep_width=1)
    assert max(float(grad.abs().max()) for grad in gradient.values()) > 1e-4
    assert all(grad.dtype == torch.float64 for grad in gradient.values())
    return gradient


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("cut", [naive, whole_groups, gap])
@pytest.mark.parametrize("width", [1, 2, 3, 0])
def test_widths_and_partitions(
    flux_folder: Path, tmp_path: Path, sequential: dict[str, torch.Tensor], cut: Cut, width: int
) -> None:
    gradient = gradient_of(flux_folder, tmp_path, cut, update_batch=4, timestep_width=width)
    assert largest_difference(gradient, sequential) <= LARGEST


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_arrival_order(
    flux_folder: Path, tmp_path: Path, sequential: dict[str, torch.Tensor], order: tuple[int, ...]
) -> None:
    gradient = gradient_of(flux_folder, tmp_path, gap, order, update_batch=2, timestep_width=2)
    assert largest_difference(gradient, sequential) <= LARGEST


def test_a_lost_micro_batch_would_be_seen(
    flux_folder: Path, tmp_path: Path, sequential: dict[str, torch.Tensor]
) -> None:
    gradient = gradient_of(flux_folder, tmp_path, whole_groups, [0], update_batch=4)
    assert largest_difference(gradient, sequential) > 1000 * LARGEST


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "flow_grpo", "options": {"kl_coefficient": 0.04}},
        {"name": "grpo_guard", "options": {"kl_coefficient": 0.04}},
        {"name": "diffusion_nft", "options": {}},
    ],
    ids=lambda algorithm: algorithm["name"],
)
def test_every_algorithm(flux_folder: Path, tmp_path: Path, algorithm: Mapping[str, object]) -> None:
    """With the KL's second forward pass, the means and the renoised samples that they need."""
    alone = gradient_of(flux_folder, tmp_path, naive, algorithm=algorithm, update_batch=1, timestep_width=1)
    assert max(float(grad.abs().max()) for grad in alone.values()) > 1e-4
    dealt = gradient_of(flux_folder, tmp_path, gap, [1, 0], algorithm=algorithm, update_batch=4, timestep_width=2)
    assert largest_difference(dealt, alone) <= LARGEST


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_generating_between_updates_leaves_the_gradient_alone(
    flux_folder: Path, tmp_path: Path, trainable: str
) -> None:
    config = job_config(flux_folder, training={"trainable": trainable, "lora_rank": 4})
    on = bench("trainer", config, tmp_path)
    on.update(whole_groups(on)[0])
    before = on.gradient()
    assert any(grad is not None and bool(grad.abs().max() > 0) for grad in before.values())
    on.generate(on.generate_task())
    assert same(before, on.gradient())


def test_gradient_checkpointing_changes_no_bit(flux_folder: Path, tmp_path: Path) -> None:
    plain, saving = (
        bench("trainer", job_config(flux_folder, training={"gradient_checkpointing": on}), tmp_path)
        for on in (False, True)
    )
    for each in (plain, saving):
        each.update(naive(each)[0])
    assert same(plain.gradient(), saving.gradient())
