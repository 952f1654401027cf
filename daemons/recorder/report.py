"""report.html: one page that opens from disk, without a network and without scripts.

Owns what the page is given; the markup is the template's. `python -m daemons.recorder.report runs/ID` makes
the page again from events.jsonl. Invariant: bounded in size, whatever the length of the run.
"""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import DictLoader, Environment, StrictUndefined

from daemons.recorder.charts import HEIGHT, WIDTH, fixed, number
from daemons.recorder.curves import cost_charts, outcome_charts, training_charts
from daemons.recorder.drift_charts import drift_charts
from daemons.recorder.eventlog import read_events
from daemons.recorder.files import replace
from daemons.recorder.gallery import Pair, pairs
from daemons.recorder.lanes import Lanes, detail, duration, overview, short_names
from daemons.recorder.stagerows import column_sums, group_shares, stage_rows
from daemons.recorder.story import Story, read_config
from daemons.recorder.verdict import CHECKED, changes, concerns, prompt_changes, result
from digend import __version__
from digend.exitcodes import ExitCode

FILE_NAME = "report.html"
_TEMPLATES = ("report.html.j2", "style.html.j2", "drawings.html.j2")
_SHOWN_PAIRS = 6
_OVERVIEW_WIDTH, _DETAIL_WIDTH, _MAX_FULL_WIDTH = 1040.0, 1040.0, 9000.0
_DETAIL_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """The best and the worst prompts, and all the others."""

    best: list[Pair]
    worst: list[Pair]
    others: list[Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timelines:
    overview: Lanes
    recent: Lanes
    full: Lanes
    kinds: list[str]
    num_dropped: int


def write_report(folder: Path, story: Story) -> None:
    """Raises OSError where the page cannot be written; the old one is left then."""
    replace(folder / FILE_NAME, render(folder, story).encode())


def render(folder: Path, story: Story) -> str:
    """The page. Pictures are read from `folder/samples`, the job file from `folder/job.toml`."""
    view = story.detail()
    table = story.stage_table()
    rows = stage_rows(table)
    found = prompt_changes(story.before, story.latest)
    page: str = (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            job=view.job,
            config=story.config,
            result=result(view),
            changes=changes(view),
            concerns=concerns(story),
            checked=CHECKED,
            outcome_charts=outcome_charts(story),
            training_charts=training_charts(story),
            drift_charts=drift_charts(story),
            cost_charts=cost_charts(story),
            films=_films(folder / "samples"),
            gallery=_gallery(folder, story),
            prompt_changes=found,
            timelines=_timelines(story),
            table=table,
            stage_rows=rows,
            group_shares=group_shares(rows),
            column_sums=column_sums(table),
            short_names=short_names(table.seconds),
            incidents=list(story.incidents),
            num_incidents=story.num_incidents,
            origin_ns=view.job.started_ns or view.job.submitted_ns,
            toml=_text(folder / "job.toml"),
            sheets=sorted(path.name for path in (folder / "samples").glob("*") if path.suffix in (".png", ".webp")),
            when=_when(view.job.submitted_ns),
            version=__version__,
            chart_size=(WIDTH, HEIGHT),
        )
    )
    return page


def _films(samples: Path) -> list[tuple[str, list[str]]]:
    """Animations of single samples, newest evaluation first: (folder, names)."""
    folders = sorted((path for path in samples.glob("step-*") if path.is_dir()), reverse=True)
    return [(folder.name, sorted(path.name for path in folder.glob("*.webp"))) for folder in folders]


def _gallery(folder: Path, story: Story) -> Gallery:
    found = prompt_changes(story.before, story.latest)
    made = pairs(folder / "samples", story.before, story.latest, found)
    if len(made) <= 2 * _SHOWN_PAIRS:
        return Gallery(best=made, worst=[], others=[])
    return Gallery(best=made[:_SHOWN_PAIRS], worst=made[-_SHOWN_PAIRS:], others=made[_SHOWN_PAIRS:-_SHOWN_PAIRS])


def _timelines(story: Story) -> Timelines | None:
    timeline, view = story.timeline, story.detail()
    spans, marks, stagings = timeline.spans, timeline.marks, timeline.stagings
    if not spans:
        return None
    origin = view.job.started_ns or view.job.submitted_ns
    first, last = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    steps = [mark.at_ns for mark in marks if mark.kind == "step"]
    begin, end = (steps[-1 - _DETAIL_STEPS], steps[-1]) if len(steps) > _DETAIL_STEPS else (first, last)
    width = min(max((last - first) / 1e9 * 40, _DETAIL_WIDTH), _MAX_FULL_WIDTH)
    return Timelines(
        overview=overview(spans, marks, origin_ns=origin, width=_OVERVIEW_WIDTH, stagings=stagings),
        recent=detail(spans, marks, begin, end, origin_ns=origin, width=_DETAIL_WIDTH, stagings=stagings),
        full=detail(spans, marks, first, last, origin_ns=origin, width=width, stagings=stagings),
        kinds=sorted({span.kind for span in (*spans, *stagings)}),
        num_dropped=timeline.num_dropped,
    )


@cache
def _environment() -> Environment:
    folder = files("daemons") / "report"
    loader = DictLoader({name: (folder / name).read_text(encoding="utf-8") for name in _TEMPLATES})
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, fixed=fixed, duration=duration)
    return environment


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _when(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def main(arguments: list[str]) -> int:
    """`python -m daemons.recorder.report RUN...`"""
    if not arguments:
        print("usage: python -m daemons.recorder.report runs/ID [runs/ID ...]", file=sys.stderr)
        return ExitCode.USAGE
    for name in arguments:
        folder = Path(name)
        if not (folder / "events.jsonl").is_file():
            print(f"{folder} is no run folder: it has no events.jsonl", file=sys.stderr)
            return ExitCode.NOT_FOUND
        story = Story(read_config(folder / "job.toml"))
        for record in read_events(folder / "events.jsonl"):
            story.add(record)
        write_report(folder, story)
        print(folder / FILE_NAME)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
