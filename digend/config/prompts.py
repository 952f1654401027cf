"""The prompts file: UTF-8, one prompt a line. A prompt is known by its place: equal lines are two prompts."""

import hashlib
import json
from collections.abc import Sequence

from digend.config.errors import ConfigError, Problem
from digend.config.source import read_text


def read_prompts(path: str) -> list[str]:
    """The prompts in order, stripped; blank lines and lines that begin with # are skipped.

    Raises ConfigError: no such file, not UTF-8 (names the byte), no prompt in it.
    """
    lines = [line.strip() for line in read_text(path).splitlines()]
    prompts = [line for line in lines if line and not line.startswith("#")]
    if not prompts:
        raise ConfigError([Problem(where=path, key="", message="no prompts: expected one a line")])
    return prompts


def packed_prompts(prompts: Sequence[str]) -> bytes:
    """What is uploaded, and what its digest covers: a JSON list in UTF-8."""
    return json.dumps(list(prompts), ensure_ascii=False, separators=(",", ":")).encode()


def unpacked_prompts(content: bytes) -> list[str]:
    """The inverse of `packed_prompts`. Raises ValueError where the bytes are no list of strings, or empty."""
    prompts = json.loads(content)
    if not isinstance(prompts, list) or not prompts or not all(isinstance(each, str) for each in prompts):
        raise ValueError("expected a JSON list of prompts, with one at least")
    return prompts


def content_digest(content: bytes) -> str:
    """Under which the driver keeps an upload: BLAKE2b with 256 bits, in hex."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()
