"""Versions of what decides numbers, read from package metadata: nothing is imported for it."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from digend import __version__
from digend.wire.workers import Versions

NUMBERS = ("torch", "diffusers", "transformers", "peft")
ENGINE = (*NUMBERS, "accelerate")
"""What generators and trainers import beyond the base: the extra `digend[worker]`."""


def installed_versions() -> Versions:
    """What HELLO says; a package that is missing is left out."""
    return Versions(digend=__version__, python=platform.python_version(), numbers=_numbers())


def lacking(names: Sequence[str]) -> str:
    """Which of these packages are not installed in this environment, and the line that mends it; empty: none."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return ""
    return (
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here: pip install 'digend[worker]'"
    )


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _numbers() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in NUMBERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
