"""`file.py:function` rewards: from allowed folders only."""

from pathlib import Path

import numpy as np
import pytest

from digend.rewards.files import RewardFileError, is_file_reward, load_file_reward
from digend.rewards.spec import Batch

SOURCE = """
def ones(pixels, prompts, metadata):
    return [1.0 for _ in prompts]

NOT_A_FUNCTION = 3
"""
BATCH = Batch(pixels=np.zeros((2, 3, 4, 4), np.float32), prompts=["a", "b"], metadata=[{}, {}])


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed"
    (folder / "deeper").mkdir(parents=True)
    (folder / "mine.py").write_text(SOURCE)
    (folder / "deeper" / "mine.py").write_text(SOURCE)
    (folder / "broken.py").write_text("import nowhere_at_all\n")
    (tmp_path / "outside.py").write_text(SOURCE)
    return folder


def test_the_form_of_the_name() -> None:
    assert is_file_reward("mine.py:ones")
    assert is_file_reward("/abs/mine.py:ones")
    assert not is_file_reward("shapes_both")
    assert not is_file_reward("package:ones")


@pytest.mark.parametrize("file", ["mine.py", "deeper/mine.py", "deeper/../mine.py"])
def test_files_inside(allowed: Path, file: str) -> None:
    assert load_file_reward(f"{file}:ones", [allowed]).score(BATCH).values == [1.0, 1.0]


def test_absolute_names_and_several_folders(allowed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert load_file_reward(f"{allowed}/mine.py:ones", [other, allowed]).score(BATCH).values == [1.0, 1.0]
    assert load_file_reward("mine.py:ones", [other, allowed]).score(BATCH).values == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../outside.py:ones", "outside the folders of reward_paths"),
        ("{root}/outside.py:ones", "outside the folders of reward_paths"),
        ("none.py:ones", "no file none.py in the folders of reward_paths"),
        ("mine.py:twos", "has no function 'twos'"),
        ("mine.py:onse", "has no function 'onse'; did you mean ones?"),
        ("mine.py:NOT_A_FUNCTION", "has no function"),
        ("broken.py:ones", "does not import"),
    ],
)
def test_what_is_refused(allowed: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(RewardFileError, match=words):
        load_file_reward(name.format(root=tmp_path), [allowed])


def test_links_are_followed_before_the_check(allowed: Path, tmp_path: Path) -> None:
    (allowed / "link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(RewardFileError, match="outside the folders of reward_paths"):
        load_file_reward("link.py:ones", [allowed])
    entrance = tmp_path / "entrance"
    entrance.symlink_to(allowed)
    assert load_file_reward("mine.py:ones", [entrance]).score(BATCH).values == [1.0, 1.0]


def test_without_an_allowed_folder_nothing_runs(allowed: Path) -> None:
    with pytest.raises(RewardFileError, match="reward_paths"):
        load_file_reward(f"{allowed}/mine.py:ones", [])
