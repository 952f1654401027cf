"""`report`, `samples` and `compare`: of jobs the driver knows, of run folders, and of boxes elsewhere."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from clients.comparison import Line, comparable, same
from clients.verbs.compare import _digest
from digend.checkpoint_names import tensor_file
from digend.wire import records as r
from digend.wire.records import Record
from digend.wire.refs import BlobRef
from digend.wire.tasks import Receipt
from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import Canned, node_view

BLOB = BlobRef(owner="ipc:///nowhere", instance="i", id="b", num_bytes=1, digest="d")


def evaluation(step: int, label: str, reward: float) -> r.EvaluationRecord:
    groups = tuple(
        r.EvalGroup(prompt=uid, text=text, blob=BLOB, rewards=(reward, reward + 0.1, None))
        for uid, text in (("p1", "a red circle"), ("p2", "a green square"))
    )
    return r.EvaluationRecord(
        global_step=step,
        version=step,
        incarnation=0,
        label=label,
        metrics={"reward": reward, "diversity": 0.25},
        num_samples=6,
        seconds=1.0,
        groups=groups,
    )


def records(job: str, reward: float, weights: str, folder: Path) -> list[Record]:
    task = r.TaskRecord(
        worker="w",
        task="update",
        lease="1.1",
        start_ns=0,
        end_ns=2_000_000_000,
        receipt=Receipt(total_ns=2_000_000_000, stages=()),
    )
    path = folder / job / "checkpoints" / "step-000004"
    path.mkdir(parents=True)
    files = {"weights.safetensors": {"bytes": 1, "blake2b": weights}}
    (path / "manifest.json").write_text(json.dumps({"files": files}))
    bodies: list[r.RecordBody] = [
        r.JobState(state="running"),
        evaluation(0, "before", 0.5),
        task,
        r.IdleRecord(worker="w", start_ns=2_000_000_000, end_ns=3_000_000_000, cause="update", bubble=True),
        r.CheckpointRecord(global_step=4, version=4, incarnation=0, path=str(path), digest=job, pipeline=None),
        evaluation(4, "after", reward),
        r.JobState(state="completed"),
    ]
    return [Record(job=job, seq=seq, at_ns=seq * 500_000_000, body=body) for seq, body in enumerate(bodies)]


@pytest.fixture
def runs(tmp_path: Path, canned: Canned) -> Path:
    """Two jobs that a recorder of this box has written."""
    folder = tmp_path / "runs"
    for job, reward, rate in (("shapes-002", 0.7, 1e-4), ("other-001", 0.8, 3e-4)):
        canned.records[job] = records(job, reward, "abc", folder)
        canned.job_files[job] = f'name = "{job}"\n[training]\nlearning_rate = {rate}\nseed = 1\n'
        (folder / job / "job.toml").write_text(canned.job_files[job])
        write_events(folder / job, canned.records[job])
    canned.nodes = (*canned.nodes, recorder(folder, socket.gethostname()))
    return folder


def recorder(folder: Path, host: str) -> Any:
    return replace(node_view("box/recorder/0", "idle"), host=host, runs=str(folder))


def write_events(folder: Path, found: list[Record]) -> None:
    """As the recorder does."""
    with (folder / "events.jsonl").open("w") as file:
        for record in found:
            fields = TypeAdapter(Record).dump_python(record, mode="json")
            body = fields.pop("body")
            file.write(json.dumps({**fields, **body}) + "\n")


@pytest.mark.usefixtures("driver")
def test_report(digenctl: Digenctl, runs: Path) -> None:
    missing = digenctl("report", "sha")
    assert missing.returncode == 5
    assert "no report of job shapes-002 yet" in missing.stderr
    report = runs / "shapes-002" / "report.html"
    report.write_text("<html>")
    assert digenctl("report", "sha").stdout == f"{report}\n"
    document = json.loads(digenctl("report", "--json").stdout)
    assert (document["path"], document["url"], document["here"]) == (str(report), report.as_uri(), True)
    assert digenctl("report", str(runs / "shapes-002")).stdout == f"{report}\n"
    unknown = digenctl("report", "shopes")
    assert unknown.returncode == 5
    assert "did you mean shapes-002?" in unknown.stderr


@pytest.mark.usefixtures("driver", "runs")
def test_what_is_on_another_box_is_told_with_its_host(digenctl: Digenctl, canned: Canned) -> None:
    canned.nodes = (recorder(Path("/srv/runs"), "recorder-box"),)
    result = digenctl("report", "sha")
    assert result.returncode == 0
    assert result.stdout == "recorder-box:/srv/runs/shapes-002/report.html\n"
    assert "scp recorder-box:/srv/runs/shapes-002/report.html ." in result.stderr
    assert "recorder-box:/srv/runs/shapes-002/samples/step-000004.png" in digenctl("samples", "sha").stdout
    canned.nodes = ()
    assert digenctl("report", "sha").stdout == "elsewhere:/nowhere/runs/shapes-002/report.html\n"


@pytest.mark.usefixtures("driver")
def test_samples(digenctl: Digenctl, runs: Path) -> None:
    sheet = runs / "shapes-002" / "samples" / "step-000004.png"
    sheet.parent.mkdir()
    sheet.write_bytes(b"png")
    assert digenctl("samples", "shapes-002", "-o", "step,label,reward,prompt,sheet").stdout.splitlines() == [
        "STEP  LABEL   REWARD  PROMPT     SHEET",
        "0     before  0.500   2 prompts  not drawn",
        f"4     after   0.700   2 prompts  {sheet}",
    ]
    by_prompt = digenctl("samples", "--global-step", "4", "-o", "prompt,text,reward,rewards").stdout.splitlines()
    assert by_prompt[1:] == [
        "p1      a red circle    0.750   0.700 0.800 -",
        "p2      a green square  0.750   0.700 0.800 -",
    ]
    green = digenctl("samples", "--prompt", "GREEN", "-o", "step,prompt", "--no-header").stdout.splitlines()
    assert green == ["0  p2", "4  p2"]
    document = json.loads(digenctl("samples", "--json").stdout)
    assert [each["file"] for each in document["samples"]][1] == str(sheet)
    assert document["samples"][0]["prompts"][0]["rewards"] == [0.5, 0.6, None]


@pytest.mark.usefixtures("driver", "runs")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--global-step", "3"), "no evaluation at global step 3; the nearest is at 4"),
        (("--prompt", "a red cycle"), "no evaluated prompt 'a red cycle'; did you mean 'a red circle'?"),
    ],
)
def test_samples_that_are_not_there(digenctl: Digenctl, args: tuple[str, ...], said: str) -> None:
    result = digenctl("samples", *args)
    assert result.returncode == 5
    assert said in result.stderr


def test_samples_of_a_folder_need_no_driver(digenctl: Digenctl, runs: Path) -> None:
    result = digenctl("samples", str(runs / "shapes-002"), "-o", "step,reward", "--no-header")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["0  0.500", "4  0.700"]
    nowhere = digenctl("samples", str(runs / "nothing"))
    assert nowhere.returncode == 5


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("by_folder", [False, True])
def test_compare(digenctl: Digenctl, runs: Path, by_folder: bool) -> None:
    names = [str(runs / job) if by_folder else job for job in ("shapes-002", "other-001")]
    result = digenctl("compare", *names)
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["training.learning_rate", "0.0001", "0.0003"] in lines
    assert ["wall", "time", "3.0", "3.0"] in lines
    assert ["update", "2.0", "2.0"] in lines
    assert ["after", "(global", "step", "4):", "reward", "0.700", "0.800"] in lines
    assert ["before", "(global", "step", "0):", "diversity", "0.250", "0.250"] in lines
    assert ["bubble", "share", "33.3", "%", "33.3", "%"] in lines
    assert "weights at global step 4: the same (abc)" in result.stdout
    assert "training.seed" not in result.stdout
    document = json.loads(digenctl("compare", *names, "--json").stdout)
    assert document["jobs"] == ["shapes-002", "other-001"]
    assert {"name": "training.learning_rate", "values": [0.0001, 0.0003]} in document["configuration"]


@pytest.mark.usefixtures("driver")
def test_compare_other_weights_and_bad_names(digenctl: Digenctl, runs: Path) -> None:
    manifest = runs / "other-001" / "checkpoints" / "step-000004" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("abc", "xyz"))
    assert "weights at global step 4: differ (abc, xyz)" in digenctl("compare", "sha", "oth").stdout
    assert digenctl("compare", "sha").returncode == 2
    assert "did you mean other-001?" in digenctl("compare", "sha", "ohter-001").stderr


def test_weights_in_slices_are_compared_with_those_of_as_many_files(tmp_path: Path) -> None:
    found = {}
    for name, count, digest in (("one", 1, "a"), ("two", 2, "b"), ("same", 2, "b"), ("other", 2, "c")):
        files = {tensor_file("weights", number + 1, count): {"blake2b": f"{digest}{number}"} for number in range(count)}
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"files": files}))
        found[name] = _digest(tmp_path, f"elsewhere/{name}")
    assert found["one"] == "a0"
    assert found["two"] == found["same"] != found["other"]

    def line(*names: str) -> Line:
        return Line(name="global step 4", values=tuple(found[name] for name in names))

    assert same(line("two", "same"))
    assert comparable(line("two", "other"))
    assert not comparable(line("one", "two"))
    (tmp_path / "same" / "manifest.json").write_text(json.dumps({"files": {tensor_file("weights", 1, 2): {}}}))
    assert _digest(tmp_path, "same") is None
