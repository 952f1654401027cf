"""report.html: it stands alone, is well-formed, bounded, and says what is poor."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from daemons.recorder.archive import Archive
from daemons.recorder.curves import outcome_charts
from daemons.recorder.drift_charts import drift_charts
from daemons.recorder.report import main, render
from daemons.recorder.story import Story, read_config
from daemons.recorder.verdict import changes, result
from digend.wire.records import DriftRecord, EvaluationRecord, IdleRecord, JobState, Notice, Record, StepRecord
from tests.recorder.plausible import JOB_TOML, START, PictureBook, plausible_run

RECORDS = plausible_run(num_steps=22, every=5, num_prompts=16)
VOID = {"meta", "img", "link", "br", "input", "hr"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    archive = Archive(runs, PictureBook())
    archive.write(RECORDS, {"shapes-1": JOB_TOML})
    archive.close()
    return runs / "shapes-1"


def told(records: list[Record], folder: Path | None = None) -> Story:
    story = Story(read_config(folder / "job.toml") if folder else None)
    for record in records:
        story.add(record)
    return story


class Balance(HTMLParser):
    """Raises where a tag is closed that is not open; `text` is what a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ("href", "src", "action", "data") and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.text += data


def parsed(page: str) -> Balance:
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    return balance


def test_the_page_stands_alone(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    seen = parsed(page)
    markup = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)
    assert "http" not in markup
    assert not re.search(r"//[a-z]|@import|url\((?!#)|<script|<link|<iframe", markup)
    for link in seen.links:
        assert link.startswith("data:image/") or (folder / link).exists(), link
    assert sum(link.startswith("data:image/png;base64,") for link in seen.links) == 32


def test_the_result_is_on_top_and_what_fell_is_named(folder: Path) -> None:
    text = " ".join(parsed((folder / "report.html").read_text()).text.split())
    assert "Reward 0.550 → 0.800, accuracy 0.736 → 0.866, independent 0.737 → 0.872, diversity 0.312 → 0.262" in text
    assert "22 global steps in 2 min" in text
    assert "diversity fell from 0.312 to 0.262, −0.050 (−16 %)" in text
    assert "3 of 16 prompts have a lower mean reward than before" in text
    for incident in ("1 × restart of the trainer", "1 × failed task", "1 × global step without an optimizer step"):
        assert incident in text
    assert "of worker time went into bubbles" in text
    assert "the gradient is not finite" in text


def test_stages_sum_to_wall_time_on_the_page(folder: Path) -> None:
    story = told(RECORDS, folder)
    table = story.stage_table()
    page = (folder / "report.html").read_text()
    foot = re.search(r"<tfoot>.*?</tfoot>", page, re.DOTALL)
    assert foot is not None
    sums = [float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", foot.group())]
    assert sums[:-1] == [pytest.approx(table.wall_s, abs=0.01)] * 3
    assert sums[-1] == pytest.approx(3 * table.wall_s, abs=0.02)


def test_a_page_can_be_made_of_every_beginning_of_a_run(folder: Path) -> None:
    for num in [0, 1, 2, 3, 5, 6, *range(10, len(RECORDS), 67)]:
        parsed(render(folder, told(RECORDS[:num], folder)))


def test_what_people_wrote_is_text_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script> & \"quoted\""
    records = [
        Record(job="job", seq=0, at_ns=START, body=JobState(state="running")),
        Record(job="job", seq=1, at_ns=START + 5, body=Notice(level="warning", message=evil)),
        Record(
            job="job",
            seq=2,
            at_ns=START + 9,
            body=IdleRecord(worker="<b>", start_ns=START, end_ns=START + 9, cause=evil, bubble=True),
        ),
        Record(job="job", seq=3, at_ns=START + 9, body=JobState(state="failed", reason=evil)),
    ]
    page = render(tmp_path, told(records))
    assert "<script" not in page
    assert evil in parsed(page).text


def test_a_long_run_makes_a_bounded_page(tmp_path: Path) -> None:
    story = Story(None)
    story.add(Record(job="long", seq=0, at_ns=START, body=JobState(state="running")))
    seq = 1
    step = next(record.body for record in RECORDS if isinstance(record.body, StepRecord))
    for index in range(1, 3001):
        at = START + index * 10**9
        for part in range(10):
            begin = at + part * 10**8
            idle = IdleRecord(worker=f"n/w/{part % 4}", start_ns=begin, end_ns=begin + 10**8, cause="c", bubble=True)
            story.add(Record(job="long", seq=seq, at_ns=at, body=idle))
            seq += 1
        body = StepRecord(**{name: getattr(step, name) for name in step.__slots__} | {"global_step": index})
        story.add(Record(job="long", seq=seq, at_ns=at, body=body))
        seq += 1
    page = render(tmp_path, story)
    assert len(page) < 4_000_000
    assert "older ones are not drawn" in page
    assert page.count('class="span') <= 10_000
    parsed(page)


def test_a_failed_job_says_so_first(tmp_path: Path) -> None:
    cut = next(index for index, record in enumerate(RECORDS) if isinstance(record.body, EvaluationRecord)) + 40
    end = Record(
        job="shapes-1", seq=cut, at_ns=RECORDS[cut].at_ns, body=JobState(state="failed", reason="3 steps were skipped")
    )
    text = parsed(render(tmp_path, told([*RECORDS[:cut], end]))).text
    assert "Failed after 1 global steps" in text
    assert "3 steps were skipped" in text


def test_nothing_poor_is_said_with_what_was_looked_at(tmp_path: Path) -> None:
    text = parsed(render(tmp_path, told(RECORDS[:2]))).text
    assert "Nothing stood out. Looked at: evaluated figures that fell or did not rise" in text


def test_lost_pictures_are_lost_on_the_page_too(tmp_path: Path) -> None:
    archive = Archive(tmp_path, PictureBook(lost=["instance-local/generator/0"]))
    archive.write(RECORDS, {"shapes-1": JOB_TOML})
    archive.close()
    page = (tmp_path / "shapes-1" / "report.html").read_text()
    assert parsed(page).text.count("pictures lost") == 16
    assert page.count("data:image/png;base64,") == 16


def test_the_command_makes_the_same_page_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert main([str(folder)]) == 0
    assert (folder / "report.html").read_bytes() == page
    assert main([]) == 2
    assert main([str(folder / "samples")]) == 5
    assert "no run folder" in capsys.readouterr().err


def test_a_reward_that_is_the_only_one_is_told_once_and_its_parts_are_not_in_the_headline() -> None:
    values = {"mine": 0.4, "mine.part": 0.1, "reward": 0.4, "other": 0.2}
    after = {"mine": 0.5, "mine.part": 0.3, "reward": 0.5, "other": 0.4}
    detail = told([evaluation(0, "before", values, 0), evaluation(1, "after", after, 4)]).detail()
    assert [change.name for change in changes(detail)] == ["reward", "mine.part", "other"]
    assert "reward 0.400" in result(detail)
    assert "mine" not in result(detail)
    story = told([evaluation(0, "before", values, 0), evaluation(1, "after", after, 4)])
    assert [chart.title for chart in outcome_charts(story)] == ["reward", "mine.part", "other"]


def evaluation(seq: int, label: str, metrics: dict[str, float], global_step: int) -> Record:
    body = EvaluationRecord(
        global_step=global_step,
        version=global_step,
        incarnation=0,
        label=label,
        metrics=metrics,
        num_samples=4,
        seconds=1.0,
        groups=(),
    )
    return Record(job="shapes-1", seq=seq, at_ns=START + seq, body=body)


def step_with_drift(seq: int, global_step: int, **largest: float) -> Record:
    """By timestep and origin always the same; `largest` by worker."""
    drift = [
        DriftRecord(by="timestep", name="0", num_pairs=4, mean=1e-6, max=1e-5 * global_step),
        DriftRecord(by="timestep", name="10", num_pairs=4, mean=0.0, max=0.0),
        DriftRecord(by="origin", name="generator", num_pairs=4, mean=0.0, max=0.0),
        *(
            DriftRecord(by="worker", name=name, num_pairs=4, mean=value / 2, max=value)
            for name, value in largest.items()
        ),
    ]
    steps = [record.body for record in RECORDS if isinstance(record.body, StepRecord)]
    body = replace(steps[0], global_step=global_step, drift=tuple(drift))
    return Record(job="drift", seq=seq, at_ns=seq, body=body)


def test_drift_is_charted_by_the_workers_that_went_furthest_and_by_timestep() -> None:
    story = told(
        [
            step_with_drift(0, 1, a=1e-5, b=2e-5, c=3e-5, d=0.0),
            step_with_drift(1, 2, a=9e-5, b=2e-6, c=3e-6, e=4e-5),
        ]
    )
    workers, timesteps = drift_charts(story)
    assert [name for name, _, _ in workers.paths] == ["a", "e", "c"]
    assert workers.note == "by global step; blue: a, green: e, orange: c"
    assert timesteps.title == "By timestep"
    assert [len(path.split("L")) for _, _, path in timesteps.paths] == [2, 2]
    assert [dot.title for dot in timesteps.dots][:2] != []
    assert drift_charts(told([step_with_drift(0, 0, a=0.0)])) == [], "of nothing but zeros there is nothing to see"
