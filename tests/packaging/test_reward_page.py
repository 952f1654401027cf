"""docs/write-a-reward.md, followed: its files are written where it says, its commands run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from digend.config.loader import load_job, load_node
from digend.job_check import read_job
from tests.packaging.conftest import ROOT

PAGE = (ROOT / "docs" / "write-a-reward.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|toml|sh)\n(.*?)```", PAGE, flags=re.DOTALL)
FILES = {found[1]: text for kind, text in BLOCKS if kind != "sh" and (found := re.match(r"# ([\w./-]+)\n", text))}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder in which the page was followed."""
    here = tmp_path_factory.mktemp("reward")
    for name, text in FILES.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in COMMANDS:
        run(command, here)
    return here


def run(command: str, here: Path) -> str:
    """One line of the page. pip installs into a folder, without an index, instead of into this environment."""
    words = command.split()
    if words[0] == "pip":
        words = [
            sys.executable,
            "-m",
            "pip",
            *words[1:],
            "--no-index",
            "--no-build-isolation",
            "--target",
            "site",
            "-q",
        ]
    else:
        words[0] = sys.executable
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(here / "site")])}
    done = subprocess.run(words, cwd=here, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_every_file_has_a_name_and_every_command_runs(folder: Path) -> None:
    assert len(FILES) == sum(kind != "sh" for kind, _ in BLOCKS)
    assert len(COMMANDS) == 3
    assert (folder / "site" / "warmth_reward" / "__init__.py").is_file()
    assert run("python try_warmth.py", folder) == "warmth [1.0, -1.0]\n"
    assert run("python try_plugin.py", folder) == "warmth [0.5, None] {1: 'the picture is black'}\n"


def test_its_node_file_is_one(folder: Path) -> None:
    assert load_node(folder / "node.toml").reward_paths == [str(folder / "rewards")]
    both = (folder / "node.toml").read_text() + (folder / "reward-slots.toml").read_text()
    (folder / "both.toml").write_text(both)
    reward = load_node(folder / "both.toml").reward
    assert reward is not None
    assert reward.slots == 2


@pytest.mark.parametrize("part", ["rewards-of-job.toml", "plugin-of-job.toml"])
def test_its_parts_of_a_job_file_belong_there(folder: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder / "site"))
    demo = ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml"
    text = demo.read_text().replace('[[rewards]]\nname = "shapes_both"', (folder / part).read_text())
    text = text.replace("../models", str(ROOT / "configs" / "models"))
    text = text.replace("shapes-prompts.txt", str(demo.parent / "shapes-prompts.txt"))
    (folder / "job.toml").write_text(text)
    name = load_job(folder / "job.toml").rewards[0].name
    assert name in ("warmth.py:score", "warmth")
    assert read_job(folder / "job.toml").config.rewards[0].name == name


def test_the_option_of_the_demo_is_one() -> None:
    demo = ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml"
    (option,) = re.findall(r"--set '(rewards[^']*)'", PAGE)
    assert read_job(demo, [option]).config.rewards[0].name == "warmth.py:score"
