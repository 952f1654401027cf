"""Tensors in slices over several files: any rows of them, and what does not fit together is refused."""

import json
import shutil
from collections.abc import Callable
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
import torch

from digend.checkpoint_names import AVERAGES, WEIGHTS, tensor_file, tensor_files
from digend.engines.checkpoints import mark_of, read_checkpoint
from digend.engines.digests import file_digest
from digend.engines.protocols import TaskFault
from digend.engines.stored import Part, Stored, stored_in, write_part
from tests.engines import sliced

COUNTS = (1, 2, 3, 4, 9)


@pytest.mark.parametrize("count", COUNTS)
def test_any_rows_of_any_tensor(tmp_path: Path, count: int) -> None:
    whole = sliced.tensors(0)
    for number, part in enumerate(sliced.parts_of(whole, count), start=1):
        write_part(tmp_path / tensor_file(WEIGHTS, number, count), part)
    stored = stored_in(tmp_path, tensor_files(WEIGHTS, [path.name for path in tmp_path.iterdir()]))
    assert stored.keys() == whole.keys()
    for name, tensor in whole.items():
        found = stored[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tuple(tensor.shape))
        assert torch.equal(found.whole(), tensor)
        for first, stop in combinations_with_replacement(range(len(tensor) + 1 if tensor.ndim else 0), 2):
            rows = found.rows(first, stop)
            assert torch.equal(rows, tensor[first:stop])
            assert rows.data_ptr() % 16 == 0


def test_one_that_lies_elsewhere_is_not_made_up() -> None:
    with pytest.raises(RuntimeError, match="elsewhere"):
        Stored(torch.float32, (3, 2)).whole()


A = torch.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("total", "second", "words"),
    [
        (7, Part({"w": A}, {"w": (4, 7)}), "w: row 3 is in no file"),
        (5, Part({"w": A}, {"w": (2, 5)}), "w: row 2 is in two files"),
        (6, Part({"w": A}, {"w": (3, 7)}), "w is in 2 files that do not belong together"),
        (6, Part({"w": A.double()}, {"w": (3, 6)}), "w is in 2 files that do not belong together"),
        (6, Part({"w": A.T.contiguous()}, {"w": (3, 6)}), "w is in 2 files that do not belong together"),
        (6, Part({"w": A}), "w is in 2 files that do not belong together"),
        (6, Part({"w": A[:2].clone()}, {"w": (3, 6)}), "w: row 5 of 6 is in no file"),
    ],
)
def test_slices_that_do_not_fit_are_refused(tmp_path: Path, total: int, second: Part, words: str) -> None:
    write_part(tmp_path / "1", Part({"w": A}, {"w": (0, total)}))
    write_part(tmp_path / "2", second)
    with pytest.raises(ValueError, match=words):
        stored_in(tmp_path, ["1", "2"])


def test_a_checkpoint_in_slices_is_that_of_whole_files(tmp_path: Path) -> None:
    sliced.write(tmp_path / "step-000001", 1)
    whole = read_checkpoint(tmp_path / "step-000001")
    names = {path.name for path in (tmp_path / "step-000001").iterdir()}
    assert names == {f"{kind}.safetensors" for kind in ("weights", "optimizer", "averages")} | {
        "state.json",
        "manifest.json",
    }
    for count in COUNTS[1:]:
        folder = tmp_path / "runs" / f"step-{count:06d}"
        found = read_checkpoint(folder, sliced.write(folder, count))
        assert (found.state, found.state.version) == (whole.state, 2)
        assert not found.masters
        for ours, theirs in ((found.weights, whole.weights), (found.averages, whole.averages)):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name].whole(), theirs[name].whole()) for name in ours)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def unnamed(path: Path) -> None:
    manifest = json.loads((path.parent / "manifest.json").read_text())
    del manifest["files"][path.name]
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("kind", ["weights", "optimizer", "averages"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Path.unlink, "{} is missing"),
        (cut_short, "{} has .* bytes, the manifest says"),
        (flip, "{} differs from its digest"),
        (unnamed, "does not name {}"),
    ],
)
def test_a_damaged_slice_is_named(tmp_path: Path, kind: str, damage: Callable[[Path], object], words: str) -> None:
    folder = tmp_path / "step-000001"
    sliced.write(folder, 3)
    name = tensor_file(kind, 2, 3)
    damage(folder / name)
    with pytest.raises(TaskFault, match=words.format(name)) as fault:
        read_checkpoint(folder)
    assert fault.value.error.reason == "checkpoint"


def test_slices_of_another_checkpoint_are_refused_though_the_manifest_agrees(tmp_path: Path) -> None:
    folder = tmp_path / "step-000001"
    sliced.write(folder, 3)
    manifest = json.loads((folder / "manifest.json").read_text())
    first, second = (folder / tensor_file(WEIGHTS, number, 3) for number in (1, 2))
    shutil.copyfile(first, second)
    manifest["files"][second.name] = {"bytes": second.stat().st_size, "blake2b": file_digest(second)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TaskFault, match=r"cannot be read: .*row \d+ is in two"):
        read_checkpoint(folder)


def test_several_readers_compare_every_digest_once(tmp_path: Path) -> None:
    folder = tmp_path / "step-000001"
    sliced.write(folder, 2)
    for path in sorted(folder.iterdir()):
        if path.name == "manifest.json":
            continue
        content = path.read_bytes()
        flip(path)
        found = 0
        for part in range(3):
            try:
                read_checkpoint(folder, part=part, of=3)
            except TaskFault as fault:
                found += f"{path.name} differs" in str(fault)
        path.write_bytes(content)
        assert found == 1, path.name
    assert all(each.everywhere for each in read_checkpoint(folder, part=1, of=3).weights.values())


def test_a_copy_is_not_the_very_same_checkpoint(tmp_path: Path) -> None:
    sliced.write(tmp_path / "step-000001", 2)
    copy = shutil.copytree(tmp_path / "step-000001", tmp_path / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "step-000001")
    assert mark_of(copy) != mark_of(tmp_path / "step-000001") == mark_of(tmp_path / "link")
    assert mark_of(tmp_path / "none") == ""


def test_names_of_all_files_of_a_kind() -> None:
    assert tensor_files(AVERAGES, ["weights.safetensors", "averages-1-of-2.safetensors"]) == []
    assert tensor_files(WEIGHTS, ["weights.safetensors", "state.json"]) == ["weights.safetensors"]
    there = ["weights-00002-of-00002.safetensors", "weights-00001-of-00003.safetensors.part"]
    assert tensor_files(WEIGHTS, there) == [tensor_file(WEIGHTS, number, 2) for number in (1, 2)]
