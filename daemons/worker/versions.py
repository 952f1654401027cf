"""Versions of what decides numbers, read from package metadata: nothing is imported for it."""

import platform
from importlib.metadata import PackageNotFoundError, version

from digend import __version__
from digend.wire.workers import Versions

NUMBERS = ("torch", "diffusers", "transformers", "peft")


def installed_versions() -> Versions:
    """What HELLO says; a package that is missing is left out."""
    return Versions(digend=__version__, python=platform.python_version(), numbers=_numbers())


def _numbers() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in NUMBERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
