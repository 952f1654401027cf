"""Which folders are checkpoints, and that nobody else's are deleted."""

from pathlib import Path

from digend.checkpoint_names import MANIFEST, checkpoint_name, checkpoints_in
from digend.engines.checkpoints import _prune


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / MANIFEST).write_text("{}")


def test_by_number_and_not_by_text(tmp_path: Path) -> None:
    made(tmp_path, "step-000002", "step-1000000", "step-000010", "step-000010.keep", "step-9", "step-000002 (copy)")
    (tmp_path / "step-000099").mkdir()
    assert list(checkpoints_in(tmp_path)) == [2, 10, 1000000]
    assert checkpoint_name(10) == "step-000010"
    assert checkpoints_in(tmp_path / "nowhere") == {}


def test_a_persons_copy_is_not_pruned_and_takes_no_place(tmp_path: Path) -> None:
    made(tmp_path, *(f"step-{step:06d}" for step in (1, 2, 3)), "step-000001.keep", "step-zzz")
    _prune(tmp_path / "step-000003", keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000001.keep",
        "step-000002",
        "step-000003",
        "step-zzz",
    ]
