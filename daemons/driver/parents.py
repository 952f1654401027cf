"""Jobs that others are forked from: their job file, prompts and checkpoints, as far as the driver's box has them.

Owns which checkpoint a fork starts from and what it may not change. Torch-free: reads manifests, never a tensor.
Invariant: what is refused names what there is instead.
"""

import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from broker.core import Core
from daemons.driver.archive import Archive
from daemons.driver.refusal import Refusal
from digend.checkpoint_names import AVERAGES, MANIFEST, checkpoints_in, tensor_files
from digend.config.job import JobConfig
from digend.exitcodes import ExitCode
from digend.plugins import algorithm_spec
from digend.wire.refs import CheckpointRef
from digend.wire.requests import ForkOf
from digend.wire.views import JobDetail

STATE = "state.json"
"""A file of a checkpoint (digend.engines.checkpoints)."""

_KEYS = (
    "model.family",
    "model.path",
    "model.dtype",
    "training.trainable",
    "training.lora_rank",
    "training.lora_alpha",
    "training.lora_targets",
    "training.optimizer",
)
"""What a checkpoint's tensors are of: another value of these has other tensors, or gives them another meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What a fork takes over. `prompts`, `eval_prompts`: digests of uploads. `averages`: kept in the checkpoint."""

    config: JobConfig
    prompts: str
    eval_prompts: str | None
    checkpoint: CheckpointRef
    averages: bool


class Parents:
    """`detail(job)` raises Refusal for a job that is not known."""

    def __init__(self, core: Core, archive: Archive, detail: Callable[[str], JobDetail]) -> None:
        self._core = core
        self._archive = archive
        self._detail = detail

    def find(self, fork: ForkOf) -> Parent:
        """Raises Refusal."""
        detail, row = self._detail(fork.parent), self._archive.job(fork.parent)
        if row is None or not row.prompts:
            raise Refusal(ExitCode.NOT_FOUND, f"job {fork.parent}: the journal has not kept its prompts")
        folder = _checkpoints(detail)
        path = _of_step(detail.job.id, folder, fork.global_step)
        known = self._core.state.jobs.get(fork.parent)
        return Parent(
            config=JobConfig.model_validate(tomllib.loads(row.toml)),
            prompts=row.prompts,
            eval_prompts=row.eval_prompts,
            checkpoint=_reference(detail.job.id, path, known.checkpoint_node if known else ""),
            averages=bool(tensor_files(AVERAGES, [file.name for file in path.iterdir()])),
        )


def _checkpoints(detail: JobDetail) -> Path:
    """The folder of a job's checkpoints, where this box has it."""
    job = detail.job
    if detail.checkpoint is None:
        raise Refusal(ExitCode.NOT_FOUND, f"job {job.id} has no checkpoint yet (it is {job.state})")
    folder = Path(detail.checkpoint).parent
    if not folder.is_dir():
        raise Refusal(
            ExitCode.NOT_FOUND,
            f"{folder}, where the trainer of job {job.id} wrote its checkpoints, cannot be read on the driver's box: "
            "it is on the trainer's. Fork where both are on one box, or share the folder under the same path",
        )
    return folder


def _of_step(job: str, folder: Path, global_step: int) -> Path:
    found = checkpoints_in(folder)
    if global_step not in found:
        there = ", ".join(map(str, found)) or "none"
        raise Refusal(
            ExitCode.NOT_FOUND,
            f"job {job} has no checkpoint of global step {global_step} in {folder}: there are {there}",
        )
    return found[global_step]


def _reference(job: str, path: Path, node: str) -> CheckpointRef:
    try:
        state = json.loads((path / STATE).read_text("utf-8"))
        digest = blake2b((path / MANIFEST).read_bytes(), digest_size=16).hexdigest()
        return CheckpointRef(
            job=job,
            global_step=int(state["global_step"]),
            version=int(state["version"]),
            path=str(path),
            digest=digest,
            node=node,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(ExitCode.NOT_FOUND, f"checkpoint {path} cannot be read: {error}") from error


def require_fitting(parent: Parent, config: JobConfig) -> None:
    """That the checkpoint can be gone on from under this job file. Raises Refusal with every key that forbids it."""
    problems = list(_problems(parent, config))
    if problems:
        raise Refusal(ExitCode.BAD_CONFIG, "\n".join(problems))


def _problems(parent: Parent, config: JobConfig) -> Iterator[str]:
    before, after = parent.config.model_dump(mode="json"), config.model_dump(mode="json")
    origin = parent.checkpoint
    where = f"the checkpoint of {origin.job} at global step {origin.global_step}"
    for key in _KEYS:
        section, _, name = key.partition(".")
        old, new = before[section][name], after[section][name]
        if old != new:
            yield f"{key} = {new!r}: {where} was made with {old!r}, and does not fit another"
    old_decay, new_decay = parent.config.training.ema_decay, config.training.ema_decay
    if new_decay is not None and old_decay is None:
        yield f"training.ema_decay = {new_decay!r}: {where} has no moving average (there it is {old_decay!r})"
    old_name, new_name = parent.config.algorithm.name, config.algorithm.name
    if algorithm_spec(new_name).old_decay is not None and algorithm_spec(old_name).old_decay is None:
        yield (
            f"algorithm.name = {new_name!r}: {where} has no policy of its own that samples, which it needs "
            f"(there it is {old_name!r})"
        )
    if origin.global_step >= config.training.global_steps:
        yield (
            f"training.global_steps = {config.training.global_steps}: {where} is there already (parent: "
            f"{parent.config.training.global_steps}); expected more than {origin.global_step}"
        )
    if origin.global_step % config.training.updates_per_rollout:
        yield (
            f"training.updates_per_rollout = {config.training.updates_per_rollout}: {where} is inside a rollout "
            f"(parent: {parent.config.training.updates_per_rollout})"
        )
