"""docs/coming-from.md: its job file is one, its rewards run, and the keys that it names are there."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from digend.config.job import JobConfig
from digend.config.keys import keys_of
from digend.config.loader import load_job
from digend.job_check import read_job
from digend.plugins import algorithm_spec
from digend.rewards.files import load_file_reward
from digend.rewards.spec import Batch
from tests.packaging.conftest import ROOT

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
FILES = {
    found[1]: text
    for _, text in re.findall(r"```(python|toml)\n(.*?)```", PAGE, flags=re.DOTALL)
    if (found := re.match(r"# ([\w./-]+)\n", text))
}
SECTIONS = ("model", "sampling", "algorithm", "data", "training", "eval", "checkpoint")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "train.txt").write_text("\n".join(f"a sign that says {number}" for number in range(48)))
    (tmp_path / "test.txt").write_text("a sign that says test\n")
    return tmp_path


def test_the_job_file_is_theirs(folder: Path) -> None:
    job = load_job(folder / "job.toml")
    read_job(folder / "job.toml")
    assert (job.data.prompts_per_rollout, job.data.samples_per_prompt) == (32 * 9 * 4 // 24, 24)
    assert job.training.updates_per_rollout == 4 // 2


def test_a_function_of_flow_grpo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same form, in a module of that name: theirs is not installed here."""
    theirs = ModuleType("flow_grpo.rewards")
    theirs.ocr_score = lambda device: lambda images, prompts, metadata: (images.mean((1, 2, 3)), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flow_grpo", ModuleType("flow_grpo"))
    monkeypatch.setitem(sys.modules, "flow_grpo.rewards", theirs)
    batch = Batch(pixels=np.full((2, 3, 4, 4), 0.5, np.float32), prompts=["a", "b"], metadata=[{}, {}])
    scores = load_file_reward("theirs.py:score", [str(folder / "rewards")]).score(batch)
    assert list(scores.values) == [0.5, 0.5]


def test_a_function_of_verl_omni(folder: Path) -> None:
    batch = Batch(pixels=np.full((1, 3, 4, 4), 0.5, np.float32), prompts=["a"], metadata=[{"ground_truth": "stop"}])
    assert list(load_file_reward("verl.py:score", [str(folder / "rewards")]).score(batch).values) == [0.5]


def test_keys_that_it_names_are_there() -> None:
    """Of the last column of its table, and `algorithm.options` by the algorithm's own model."""
    known = set(keys_of(JobConfig)) | {
        f"algorithm.options.{name}" for name in algorithm_spec("flow_grpo").options.model_fields
    }
    names = {name.rpartition(".")[2] for name in known}
    rows = re.findall(
        r"^\|.*\|.*\| (.*) \|$", PAGE.partition("## The config")[2].partition("SD3's list")[0], flags=re.MULTILINE
    )
    found = [word.partition(" =")[0] for row in rows[2:] for word in re.findall(r"`([^`]+)`", row)]
    assert len(found) > 30
    for word in found:
        if word.partition(".")[0] in SECTIONS and "." in word:
            assert word in known, word
        elif not word.startswith(("[[", "flow_sde", "sde")):
            assert word in names, word
