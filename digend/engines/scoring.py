"""Scoring: decoded pixels to one reward a sample, with every part named.

Owns the job's rewards (a weighted sum) and evaluation's metrics, which no reward sees. Invariant: a reward that raises,
gives no value, a value that is not finite, or another number of values than samples is a status with a reason: the
sample's reward is None, never a number. A metric that fails costs its own value only.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from digend.config.job import JobConfig, MetricConfig, RewardConfig
from digend.engines.diversity import diversity
from digend.engines.picture_names import LATENTS, PIXELS
from digend.engines.protocols import Cancelled, Context, TaskFault
from digend.plugins import load_object, reward_spec, validate_options
from digend.printable import printable
from digend.rewards.files import is_file_reward, load_file_reward
from digend.rewards.frames import PerFrame
from digend.rewards.labels import labels_of
from digend.rewards.spec import Batch, Reward, Scores
from digend.rl.advantages import LARGEST_REWARD
from digend.wire.tasks import SampleScore, ScoreItem, ScoreResult, ScoreTask
from digend.wire.tensors import Array, to_numpy

if TYPE_CHECKING:
    from digend.engines.pictures import LatePictures

_log = logging.getLogger(__name__)

MAX_REASON_CHARS = 600
"""Of what a reward raised: it goes into records, once a sample."""

Pixels = NDArray[np.uint8]
Build = Callable[[BaseModel, str], Reward]


@dataclass(frozen=True, slots=True)
class Scorer:
    """One reward of the job, or a metric (`weight` None). `label` names its curves."""

    label: str
    weight: float | None
    reward: Reward
    cuts_itself: bool = False


@dataclass(slots=True)
class _Tally:
    """What is known of one sample so far."""

    values: list[float] = field(default_factory=list)
    components: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


def build_scorers(config: JobConfig, device: str, folders: Sequence[Path]) -> list[Scorer]:
    """Rewards, then metrics. Raises TaskFault("config") that names the key of the one that cannot be built."""
    scorers: list[Scorer] = []
    wanted: list[tuple[str, RewardConfig | MetricConfig, float | None]] = [
        (f"rewards[{at}]", each, each.weight) for at, each in enumerate(config.rewards)
    ]
    wanted += [(f"eval.metrics[{at}]", each, None) for at, each in enumerate(config.eval.metrics)]
    labels = labels_of(section.name for _, section, _ in wanted)
    for label, (where, section, weight) in zip(labels, wanted, strict=True):
        name = section.name
        try:
            reward, cuts_itself = _build(where, name, section.options, device, folders)
            if section.frames != "whole":
                reward = PerFrame(reward, section.frames)
        except Exception as error:
            raise TaskFault("config", f"{where} ({name}): {error}") from error
        scorers.append(Scorer(label, weight, reward, cuts_itself))
    return scorers


def _build(
    where: str, name: str, options: Mapping[str, object], device: str, folders: Sequence[Path]
) -> tuple[Reward, bool]:
    """The reward, and whether it cuts its samples itself."""
    if is_file_reward(name):
        if options:
            raise ValueError(f"{where}.options: a reward from a file takes no options")
        return load_file_reward(name, folders), False
    spec = reward_spec(name)
    build = cast(Build, load_object(spec.builder))
    return build(validate_options(spec, options, f"{where}.options"), device), spec.cuts_itself


def score(
    scorers: Sequence[Scorer], task: ScoreTask, batch_size: int, context: Context, late: LatePictures | None = None
) -> ScoreResult:
    """Score all items; `late`: they are latents, which it decodes.

    Raises TaskFault("blob_lost") or Cancelled, and nothing that a reward raises.
    """
    with context.stage("fetch"):
        arrays = _fetch(task.items, PIXELS if late is None else LATENTS, context)
    used = [each for each in scorers if each.weight is not None or task.purpose == "evaluate"]
    tallies = [_Tally() for _ in task.items]
    num = len(task.items)
    decoded = 0 if late is None else num
    total = decoded + len(used) * num
    pixels = _pixels(arrays, batch_size, partial(_tell, context, 0, total), context, late)
    with context.stage("score"):
        for at, scorer in enumerate(used):
            size = num if scorer.cuts_itself else batch_size
            for start in range(0, num, size):
                rows = slice(start, start + size)
                told = partial(_tell, context, decoded + at * num + start, total)
                batch = _batch(task.items[rows], pixels[rows], told)
                _apply(scorer, batch, tallies[rows])
                told(len(batch.prompts))
        metrics = _group_metrics(task, pixels) if task.purpose == "evaluate" else {}
    scores = tuple(_result(item, tally) for item, tally in zip(task.items, tallies, strict=True))
    return ScoreResult(scores=scores, group_metrics=metrics)


def _tell(context: Context, before: int, total: int, num: int) -> None:
    """Progress is one sample scored by one reward, or decoded."""
    context.progress(before + num, total)


def _pixels(
    arrays: Sequence[Array],
    batch_size: int,
    told: Callable[[int], None],
    context: Context,
    late: LatePictures | None,
) -> list[Pixels]:
    if late is None:
        return [to_numpy(each) for each in arrays]
    pixels: list[Pixels] = []
    with context.stage("decode"):
        for start in range(0, len(arrays), batch_size):
            pixels += late.decode(arrays[start : start + batch_size])
            told(len(pixels))
    return pixels


def _fetch(items: Sequence[ScoreItem], kind: str, context: Context) -> list[Array]:
    names = [f"{item.prompt.uid}/{item.index}/{kind}" for item in items]
    blobs = {
        ref: context.pull(ref, [name for name, item in zip(names, items, strict=True) if item.blob == ref])
        for ref in dict.fromkeys(item.blob for item in items)
    }
    return [blobs[item.blob][name] for name, item in zip(names, items, strict=True)]


def _batch(items: Sequence[ScoreItem], pixels: Sequence[Pixels], told: Callable[[int], None]) -> Batch:
    return Batch(
        pixels=np.stack(pixels).astype(np.float32) / np.float32(255),
        prompts=[item.prompt.text for item in items],
        metadata=[item.prompt.metadata for item in items],
        scored=told,
    )


def _apply(scorer: Scorer, batch: Batch, tallies: Sequence[_Tally]) -> None:
    """Add one scorer's values and parts, or its failure, to a batch's samples."""
    try:
        scores = scorer.reward.score(batch)
        failure = _misfit(scores, len(tallies))
    except Cancelled:
        raise
    except Exception as error:
        scores, failure = Scores(values=()), f"raised {type(error).__name__}: {error}"
    if failure is not None:
        _fail(scorer, tallies, failure)
        return
    for at, (value, tally) in enumerate(zip(scores.values, tallies, strict=True)):
        if value is None or not abs(value) <= LARGEST_REWARD:
            reason = scores.failures.get(at, "gave no value") if value is None else f"gave {value}"
            _fail(scorer, [tally], reason)
            continue
        parts = {f"{scorer.label}.{name}": float(each[at]) for name, each in scores.components.items()}
        tally.components[scorer.label] = float(value)
        tally.components.update({name: part for name, part in parts.items() if abs(part) <= LARGEST_REWARD})
        if scorer.weight is not None:
            tally.values.append(scorer.weight * float(value))


def _misfit(scores: Scores, num_samples: int) -> str | None:
    parts: Iterable[tuple[str, Sequence[object]]] = scores.components.items()
    for what, values in [("values", scores.values), *((f"values of {name}", part) for name, part in parts)]:
        if len(values) != num_samples:
            return f"gave {len(values)} {what} for {num_samples} samples"
    return None


def _fail(scorer: Scorer, tallies: Sequence[_Tally], reason: str) -> None:
    if scorer.weight is None:
        _log.warning("metric %s: %s", scorer.label, printable(reason))
        return
    why = printable(f"reward {scorer.label} {reason}")[:MAX_REASON_CHARS]
    for tally in tallies:
        tally.failure = tally.failure or why


def _result(item: ScoreItem, tally: _Tally) -> SampleScore:
    return SampleScore(
        prompt=item.prompt.uid,
        index=item.index,
        reward=None if tally.failure else math.fsum(tally.values),
        components=tally.components,
        failure=tally.failure,
    )


def _group_metrics(task: ScoreTask, pixels: Sequence[Pixels]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Pixels]] = {}
    for item, each in zip(task.items, pixels, strict=True):
        groups.setdefault(item.prompt.uid, []).append(each)
    return {uid: {"diversity": diversity(members)} for uid, members in groups.items() if len(members) > 1}
