"""Sheets of samples of a job: which evaluations there are, what their prompts earned, which file shows them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean

from clients.jobs import NotFound
from digend.wire.records import EvaluationRecord, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRewards:
    """What one prompt's samples earned; None for a sample whose reward failed."""

    prompt: str
    text: str
    rewards: tuple[float | None, ...]

    @property
    def mean(self) -> float | None:
        known = [reward for reward in self.rewards if reward is not None]
        return fmean(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One evaluation. `file`: the grid, relative to the run folder."""

    global_step: int
    label: str
    version: int
    metrics: dict[str, float]
    file: str
    prompts: tuple[PromptRewards, ...]


def sheets_of(records: Iterable[Record]) -> list[Sheet]:
    """In order; of two evaluations at one global step the later, as its sheet replaces the earlier's."""
    found = {}
    for record in records:
        if isinstance(record.body, EvaluationRecord):
            found[record.body.global_step] = _sheet(record.body)
    return [found[step] for step in sorted(found)]


def chosen(sheets: Sequence[Sheet], global_step: int | None, prompt: str | None) -> list[Sheet]:
    """Those of a global step, reduced to a prompt: the beginning of its uid, or part of its text. Raises NotFound."""
    if not sheets:
        raise NotFound("no samples yet: sheets are drawn at evaluations")
    if global_step is not None:
        steps = [sheet.global_step for sheet in sheets]
        if global_step not in steps:
            near = min(steps, key=lambda step: abs(step - global_step))
            raise NotFound(f"no evaluation at global step {global_step}; the nearest is at {near}")
        sheets = [sheet for sheet in sheets if sheet.global_step == global_step]
    return list(sheets) if prompt is None else _of_prompt(sheets, prompt)


def _of_prompt(sheets: Sequence[Sheet], wanted: str) -> list[Sheet]:
    texts = {each.prompt: each.text for sheet in sheets for each in sheet.prompts}
    meant = {uid for uid, text in texts.items() if uid.startswith(wanted) or wanted.lower() in text.lower()}
    if not meant:
        near = get_close_matches(wanted, [*texts, *texts.values()], n=1, cutoff=0.0)
        raise NotFound(f"no evaluated prompt {wanted!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return [
        Sheet(
            global_step=sheet.global_step,
            label=sheet.label,
            version=sheet.version,
            metrics=sheet.metrics,
            file=sheet.file,
            prompts=tuple(each for each in sheet.prompts if each.prompt in meant),
        )
        for sheet in sheets
    ]


def _sheet(body: EvaluationRecord) -> Sheet:
    return Sheet(
        global_step=body.global_step,
        label=body.label,
        version=body.version,
        metrics=dict(body.metrics),
        file=str(Path("samples") / f"step-{body.global_step:06d}.png"),
        prompts=tuple(
            PromptRewards(prompt=group.prompt, text=group.text, rewards=group.rewards) for group in body.groups
        ),
    )
