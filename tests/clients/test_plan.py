"""`digenctl plan` as a process: from a run, from given times, and with what is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clients.plan_inputs import from_runs
from clients.run_log import read_run
from clients.times_file import read_times
from digend.config.errors import ConfigError
from tests.clients.conftest import ROOT, Digenctl

JOB = str(ROOT / "configs/jobs/shapes-flow-grpo.toml")
LAPTOP = str(ROOT / "configs/nodes/laptop.toml")
GIVEN = ("--generate", "10", "--assist", "12", "--update", "4", "--update-sequential", "9", "--score", "0.5")


def record(kind: str, seq: int, **fields: Any) -> str:
    return json.dumps({"seq": seq, "at_ns": 0, "job": "j", "kind": kind, **fields})


def task(seq: int, worker: str, label: str, seconds: float, num_samples: int = 0) -> str:
    ns = int(seconds * 1e9)
    receipt = {"total_ns": ns, "stages": [["generate", ns]]}
    return record(
        "task", seq, worker=worker, task=label, start_ns=5, end_ns=5 + ns, num_samples=num_samples, receipt=receipt
    )


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Two global steps of 6 micro-batches of 24 samples: 1.2 s to generate, 0.6 s to update, 0.1 s to commit."""
    lines: list[str] = []
    for _ in range(2):
        for _ in range(6):
            lines.append(task(len(lines), "box/generator/0", "generate", 1.2, 24))
            lines.append(task(len(lines), "box/trainer/0", "update", 0.6))
        lines.append(task(len(lines), "box/trainer/0", "commit", 0.1))
        lines.append(record("step", len(lines), seconds=7.9))
    folder = tmp_path / "runs/one"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("\n".join([*lines, '{"torn']))
    text = Path(JOB).read_text().replace('"../models', f'"{ROOT}/configs/models')
    (folder / "job.toml").write_text(text.replace('"shapes-prompts', f'"{ROOT}/configs/jobs/shapes-prompts'))
    return str(folder)


def test_from_a_run(digenctl: Digenctl, run: str) -> None:
    result = digenctl("plan", JOB, "--from-run", run, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema_version"] >= 1
    assert document["times"] == {"generate": 1.2, "assist": 1.2, "update": 0.6, "score": 0, "switch": 0, "commit": 0.1}
    assert document["split"]["trainer"] == "box/trainer/0"
    assert document["split"]["micro_batches"] == 6
    rows = {row["schedule"]: row for row in document["predictions"]}
    assert rows["+TSP"]["seconds"] == pytest.approx(6 * 1.2 + 0.6 + 0.1)
    assert rows["+TSP"]["over_naive"] == pytest.approx(10.9 / 7.9)
    (check,) = document["measured"]
    assert check["seconds"] == check["predicted"] == pytest.approx(7.9)
    trainer = next(each for each in document["memory"]["workers"] if each["worker"] == "box/trainer/0")
    assert trainer["device_bytes"]["optimizer state"] == 2 * trainer["device_bytes"]["transformer"]
    assert trainer["device_bytes"]["activations (estimated)"] > 0
    assert "workspaces of kernels" in document["memory"]["not_measured"]


def test_a_measured_width_is_that_of_the_run(run: str) -> None:
    folder = Path(run)
    text = (folder / "job.toml").read_text()
    changed = re.sub(r"timestep_width = \d+", 'timestep_width = "auto"', text)
    (folder / "job.toml").write_text(changed)
    assert read_run(run).job.training.timestep_width == "auto"
    told = record("notice", 0, level="info", message="tried", details={"timestep_width": "2"})
    events = folder / "events.jsonl"
    events.write_text(told + "\n" + events.read_text())
    log = read_run(run)
    assert log.job.training.timestep_width == 2
    assert {width for device in from_runs([log]).devices for width in device.update} == {2}


def test_as_text(digenctl: Digenctl, run: str) -> None:
    result = digenctl("plan", JOB, "--from-run", run)
    assert result.returncode == 0, result.stderr
    assert "box/trainer/0 trains; box/generator/0 generates" in result.stdout
    assert "Colocated wins if it scales" in result.stdout
    assert "warning: 6 micro-batches a rollout are too few to hide bubbles" in result.stdout
    assert "took 7.9 s a global step (median); with its settings 7.9 s are predicted (+0.0%)" in result.stdout
    assert not result.stderr


def test_given_times_over_the_slots_of_node_files(digenctl: Digenctl, tmp_path: Path) -> None:
    node = tmp_path / "two.toml"
    node.write_text(
        'name = "two"\n[generator]\nslots = 2\ndevices = ["cuda:0", "cuda:1"]\n[trainer]\ndevice = "cuda:1"'
    )
    document = json.loads(digenctl("plan", JOB, "--nodes", str(node), *GIVEN, "--json").stdout)
    assert document["split"]["generators"] == ["two/generator/0", "two/generator/1"]
    assert document["times"]["generate"] == 10
    assert document["times"]["assist"] == 12
    assert document["split"]["timestep_width"] == 3
    assert any("share two:cuda:1" in note for note in document["notes"])


def test_a_node_without_a_generator_is_colocated(digenctl: Digenctl) -> None:
    node = str(ROOT / "configs/nodes/trainer-only.toml")
    document = json.loads(digenctl("plan", JOB, "--nodes", node, *GIVEN, "--json").stdout)
    assert (document["winner"], document["split"]) == ("colocated", None)
    assert document["predictions"][-1]["seconds"] == pytest.approx(6 * (12 + 4 + 0.5))


def test_times_by_worker_from_a_file(digenctl: Digenctl, tmp_path: Path) -> None:
    times = tmp_path / "times.toml"
    times.write_text(
        "commit = 2.0\n"
        '[[workers]]\nname = "a/generator/0"\nrole = "generator"\ngenerate = 0.5\nscore = 0.01\n'
        '[[workers]]\nname = "a/generator/1"\nrole = "generator"\ngenerate = 1.0\n'
        '[[workers]]\nname = "a/trainer/0"\nrole = "trainer"\ngenerate = 0.4\nupdate = 0.2\nupdate_sequential = 0.3\n'
    )
    document = json.loads(digenctl("plan", JOB, "--times", str(times), "--json").stdout)
    assert document["times"]["generate"] == 8.0  # 16 samples on one, 8 on the other
    assert document["split"]["quantisation_loss"] == pytest.approx(0.0)
    assert document["devices"][1]["inferred"] == ["score", "update"]


def test_a_job_may_be_changed(digenctl: Digenctl) -> None:
    document = json.loads(
        digenctl("plan", JOB, "--set", "data.prompts_per_rollout=36", "--nodes", LAPTOP, *GIVEN, "--json").stdout
    )
    assert document["split"]["micro_batches"] == 36
    assert document["warnings"] == []


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--from-run", "runs/none", "--times", "times.toml"), 2, "give one of these"),
        (("--generate", "10"), 2, "both needed"),
        (("--generate", "10", "--update", "0"), 2, "'--update': 0: must be from 1e-09"),
        (("--generate", "nan", "--update", "1"), 2, "'--generate': nan: must be"),
        (("--memory", "inf"), 2, "'--memory': inf: must be"),
        (("--bandwidth", "1e308"), 2, "'--bandwidth': 1e308: must be"),
        ((*GIVEN, "--times", "times.toml"), 2, "give one of these"),
        (("--from-run", "runs/none"), 5, "no run at runs/none"),
        (("--times", "none.toml"), 78, "no such file"),
        ((*GIVEN, "--nodes", "none.toml"), 78, "no such file"),
        ((*GIVEN, "--set", "data.prompts_per_rolout=3"), 78, "did you mean"),
        ((*GIVEN, "--trainer", "nobody"), 5, "nobody"),
        ((*GIVEN, "--set", 'schedule.scoring="dedicated"', "--nodes", LAPTOP), 2, "no reward process"),
    ],
)
def test_what_is_wrong_is_said(digenctl: Digenctl, args: tuple[str, ...], code: int, says: str) -> None:
    result = digenctl("plan", JOB, *args, "--json")
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(result.stdout)["error"]["code"] == code


def test_a_times_file_names_its_key_and_line(digenctl: Digenctl, tmp_path: Path) -> None:
    (tmp_path / "times.toml").write_text("generate = 10\nupdat = 4\n")
    result = digenctl("plan", JOB, "--times", "times.toml")
    assert result.returncode == 78
    assert "times.toml:2: updat" in result.stderr
    assert "did you mean update?" in result.stderr


@pytest.mark.parametrize("line", ["generate = 1e300", "update = 1e-300", "switch = 1e-300", "commit = nan"])
def test_times_of_a_file_have_bounds(tmp_path: Path, line: str) -> None:
    (tmp_path / "times.toml").write_text(line)
    with pytest.raises(ConfigError, match=f"times.toml:1: {line.partition(' ')[0]} = .*: expected .*number"):
        read_times(str(tmp_path / "times.toml"))


def test_a_run_that_measured_nothing(digenctl: Digenctl, run: str) -> None:
    (Path(run) / "events.jsonl").write_text("")
    result = digenctl("plan", JOB, "--from-run", run)
    assert result.returncode == 5
    assert "a run measures once it has trained" in result.stderr
