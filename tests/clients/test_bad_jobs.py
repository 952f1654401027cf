"""Bad input to submit: exit code 78 and a message with the key, before a driver is asked for."""

import json
from pathlib import Path

import pytest

from tests.clients.conftest import Digenctl
from tests.config.support import changed, write_job

CASES = {
    "unknown key": (("height = 16", "hieght = 16"), "did you mean sampling.height?"),
    "wrong type": (("global_steps = 2", 'global_steps = "2"'), "training.global_steps"),
    "group of one": (("samples_per_prompt = 4", "samples_per_prompt = 1"), "a group of one has no advantage"),
    "window outside": (("window_range = [0, 3]", "window_range = [0, 9]"), "algorithm.options.window_range"),
    "last timestep": (("window_range = [0, 3]", "window_range = [5, 8]"), "last timestep"),
    "no prompts file": (("prompts.txt", "nowhere.txt"), "nowhere.txt: no such file"),
    "prompts file misspelt": (("prompts.txt", "promts.txt"), "promts.txt: no such file; did you mean prompts.txt?"),
    "too few prompts": (("prompts_per_rollout = 2", "prompts_per_rollout = 9"), "has 9 distinct prompts, and"),
    "file without function": (("jpeg_compressibility", "mine.py"), "FILE.py:FUNCTION, such as mine.py:score"),
    "function without .py": (("jpeg_compressibility", "mine:best"), "FILE.py:FUNCTION, such as mine.py:best"),
    "unknown reward": (("jpeg_compressibility", "jpeg_compresibility"), "did you mean jpeg_compressibility?"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_job(digenctl: Digenctl, tmp_path: Path, case: str) -> None:
    replacement, expected = CASES[case]
    write_job(tmp_path, changed(*replacement))
    result = digenctl("submit", "job.toml", "--json")
    assert result.returncode == 78
    assert "job.toml:" in result.stderr
    assert expected in result.stderr
    error = json.loads(result.stdout)["error"]
    assert (error["code"], expected in error["message"]) == (78, True)


@pytest.mark.parametrize(
    ("prompts", "expected"), [(b"\n# nothing\n", "no prompts"), (b"caf\xe9\n", "byte 0xe9 at offset 3")]
)
def test_bad_prompts(digenctl: Digenctl, tmp_path: Path, prompts: bytes, expected: str) -> None:
    write_job(tmp_path, prompts=prompts)
    result = digenctl("submit", "job.toml")
    assert result.returncode == 78
    assert "data.prompts" in result.stderr
    assert expected in result.stderr


NODE = 'name = "box"\naddress = "ipc://d.sock"\nreward_paths = ["rewards"]\n'


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("sharpnes.py:score", "did you mean sharpness.py?"),
        ("sharpness.py:scor", "has no function 'scor'; did you mean score?"),
        ("broken.py:score", "broken.py:1: "),
        ("sharpness.py:score", None),
    ],
)
def test_a_reward_file_is_looked_up_where_settings_allow_some(
    digenctl: Digenctl, tmp_path: Path, reward: str, expected: str | None
) -> None:
    write_job(tmp_path, changed("jpeg_compressibility", reward))
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "sharpness.py").write_text("def score(pixels, prompts, metadata):\n    return [0.0]\n")
    (tmp_path / "rewards" / "broken.py").write_text("def score(:\n")
    (tmp_path / "node.toml").write_text(NODE)
    nowhere = digenctl("submit", "job.toml", "--check").stderr
    assert nowhere.startswith(f"warning: rewards[0].name: {reward!r} was not looked for; --node NODE.toml names a box")
    result = digenctl("submit", "job.toml", "--check", "--node", "node.toml")
    assert result.returncode == 0
    if expected is None:
        assert result.stderr == ""
    else:
        assert "warning: rewards[0].name: by the settings of this box: " in result.stderr
        assert expected in result.stderr


def test_no_job_file(digenctl: Digenctl) -> None:
    result = digenctl("submit", "nowhere.toml")
    assert (result.returncode, result.stderr) == (78, "digenctl: nowhere.toml: no such file\n")


def test_a_job_is_checked_without_a_driver(digenctl: Digenctl, tmp_path: Path) -> None:
    write_job(tmp_path)
    result = digenctl("submit", "job.toml", "--check")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "job.toml is valid: 3 prompts, 2 global steps, 2 x 4 samples a rollout\n"
    assert json.loads(digenctl("submit", "job.toml", "--check", "--json").stdout)["valid"] is True
    assert digenctl("submit", "job.toml", "--check", "--set", "seed=x").returncode == 78


def test_a_model_folder_that_is_not_here_is_a_warning(digenctl: Digenctl, tmp_path: Path) -> None:
    write_job(tmp_path, changed('path = "model"', 'path = "nowhere"'))
    result = digenctl("submit", "job.toml", "--check")
    assert result.returncode == 0
    assert f"warning: model.path: {tmp_path}/nowhere is no folder here" in result.stderr
