"""The digest of a model folder: whether two processes hold the same base.

Covers every file below the components' folders and `model_index.json`: weights, configurations, tokenizers. Pages,
licences and hidden files do not count. Reads about 1 GB/s.
"""

from hashlib import blake2b
from pathlib import Path

CHUNK_BYTES = 8 * 1024 * 1024
_COUNTED = {".safetensors", ".json", ".txt", ".model"}


def folder_digest(folder: str | Path) -> str:
    """blake2b with 128 bits, hexadecimal, over relative names, sizes and bytes in sorted order. Raises OSError."""
    root = Path(folder)
    digest = blake2b(digest_size=16)
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in _COUNTED):
        name = path.relative_to(root)
        if any(part.startswith(".") for part in name.parts):
            continue
        digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
        _feed(digest, path)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """blake2b with 128 bits, hexadecimal, of one file's bytes. Raises OSError."""
    digest = blake2b(digest_size=16)
    _feed(digest, path)
    return digest.hexdigest()


def _feed(digest: blake2b, path: Path) -> None:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
