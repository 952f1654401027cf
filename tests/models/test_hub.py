"""`model.path` as a hub id: found in a cache laid out as the hub's library does, without a network."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from digend.config.loader import with_absolute_paths
from digend.engines.engine import LocalEngine
from digend.engines.protocols import TaskFault
from digend.hub import cached_folder, commit_of, is_hub_id, local_folder
from digend.wire.tasks import PrepareResult
from tests.engines.world import MemoryContext, job_config, prepare_task
from tests.models.checks import Subject

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
ID = "some-org/tiny-flux@main"


@pytest.fixture
def home(flux_folder: Path, tmp_path: Path) -> Path:
    """HF_HOME with one repository: `main` and the tag `v1` are a commit whose files are links to blobs."""
    repo = tmp_path / "hf/hub/models--some-org--tiny-flux"
    snapshot = repo / "snapshots" / COMMIT
    for number, file in enumerate(sorted(path for path in flux_folder.rglob("*") if path.is_file())):
        blob, link = repo / "blobs" / f"{number:064x}", snapshot / file.relative_to(flux_folder)
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(file.read_bytes())
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repo / "refs").mkdir()
    for name in ("main", "v1"):
        (repo / "refs" / name).write_text(COMMIT)
    (repo / "snapshots" / OTHER).mkdir()
    return tmp_path / "hf"


@pytest.fixture
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as this process's cache, offline."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return home / "hub/models--some-org--tiny-flux/snapshots"


@pytest.mark.parametrize("path", ["a/b@main", "org/name-1.0@v1.2", f"o/n@{COMMIT}", "o/n@refs/pr/3"])
def test_what_is_a_hub_id(path: str) -> None:
    assert is_hub_id(path)


@pytest.mark.parametrize("path", ["a/b", "/a/b@main", "./a/b@main", "a/b/c@main", "b@main", "a/b@", "../b@main"])
def test_what_is_a_folder(path: str) -> None:
    assert not is_hub_id(path)
    assert local_folder(path) == cached_folder(path) == Path(path)


@pytest.mark.parametrize("revision", ["main", "v1", COMMIT])
def test_a_revision_in_the_cache_is_its_commit(cache: Path, revision: str) -> None:
    found = local_folder(f"some-org/tiny-flux@{revision}")
    assert found == cache / COMMIT
    assert commit_of(found) == COMMIT
    assert commit_of(found.parent) == commit_of(Path("/models/flux")) == ""


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("path", ["some-org/tiny-flux@v2", "some-org/another@main", f"some-org/tiny-flux@{OTHER}"])
def test_what_the_cache_lacks_is_named_offline(path: str) -> None:
    """Another revision, another repository, and a snapshot of which nothing has arrived."""
    assert cached_folder(path) is None
    with pytest.raises(OSError, match=rf"model\.path: {path} is not in this box's cache .*HF_HUB_OFFLINE"):
        local_folder(path)


def test_another_process_finds_it_by_hf_home(home: Path) -> None:
    code = f"from digend.hub import local_folder; print(local_folder({ID!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith(f"snapshots/{COMMIT}")


def test_a_job_is_prepared_from_it(cache: Path, subjects: Callable[[str], Subject], tmp_path: Path) -> None:
    """With the folder's own digest, and the commit told; each process looks for itself."""
    results = []
    for path in (ID, str(subjects("flux").folder)):
        engine = LocalEngine("generator", "cpu", tmp_path / "runs", tmp_path / "state")
        result = engine.run(prepare_task(job_config(cache, model={"path": path})), MemoryContext())
        assert isinstance(result, PrepareResult)
        results.append(result)
    assert [each.commit for each in results] == [COMMIT, ""]
    assert results[0].base_digest == results[1].base_digest


@pytest.mark.usefixtures("cache")
def test_a_job_without_its_model_fails_with_its_name(tmp_path: Path) -> None:
    engine = LocalEngine("generator", "cpu", tmp_path / "runs", tmp_path / "state")
    with pytest.raises(TaskFault, match="some-org/none@main") as fault:
        engine.run(prepare_task(job_config(tmp_path, model={"path": "some-org/none@main"})), MemoryContext())
    assert fault.value.error.reason == "model"


def test_job_files_keep_it_as_it_is() -> None:
    for path, meant in ((ID, ID), ("models/flux", "/jobs/models/flux"), (f"./{ID}", f"/jobs/{ID}")):
        config = with_absolute_paths(job_config(Path("x"), model={"path": path}), Path("/jobs"))
        assert config.model.path == meant
