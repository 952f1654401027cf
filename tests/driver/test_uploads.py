"""Uploads: complete files only, under their digest, within the quota."""

from pathlib import Path

import pytest

from daemons.driver import uploads as module
from daemons.driver.uploads import CHUNK_BYTES, UploadRefused, Uploads
from digend.config.prompts import content_digest


def test_an_empty_file_and_a_whole_one(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    for content in (b"", b"abc"):
        digest = content_digest(content)
        assert not uploads.has(digest)
        assert uploads.add(digest, 0, len(content), content) == len(content)
        assert uploads.read(digest) == content


def test_a_part_is_no_file_and_is_forgotten_at_the_next_start(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    digest = content_digest(b"abcdef")
    assert uploads.add(digest, 0, 6, b"abc") == 3
    assert not uploads.has(digest)
    with pytest.raises(UploadRefused, match=digest):
        uploads.read(digest)
    assert Uploads(tmp_path).add(digest, 3, 6, b"def") == 0


def test_a_file_that_is_not_what_was_announced_is_dropped(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    digest = content_digest(b"abc")
    with pytest.raises(UploadRefused, match="announced"):
        uploads.add(digest, 0, 3, b"abX")
    assert uploads.add(digest, 0, 3, b"abc") == 3


@pytest.mark.parametrize(
    ("digest", "offset", "size", "data"),
    [
        ("../x", 0, 1, b"a"),
        ("ab" * 32, -1, 1, b"a"),
        ("ab" * 32, 0, 1, b"ab"),
        ("ab" * 32, 0, 5, b""),
        ("ab" * 32, 0, -5, b""),
        ("ab" * 32, 0, CHUNK_BYTES + 1, b"a" * (CHUNK_BYTES + 1)),
        ("ab" * 32, 0, module.FILE_BYTES + 1, b"a"),
    ],
)
def test_chunks_that_cannot_be_right(tmp_path: Path, digest: str, offset: int, size: int, data: bytes) -> None:
    with pytest.raises(UploadRefused):
        Uploads(tmp_path).add(digest, offset, size, data)
    assert list(tmp_path.iterdir()) == []


def test_the_quota_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL_BYTES", 10)
    uploads = Uploads(tmp_path)
    uploads.add(content_digest(b"12345678"), 0, 8, b"12345678")
    with pytest.raises(UploadRefused, match="10"):
        uploads.add(content_digest(b"abc"), 0, 3, b"abc")
