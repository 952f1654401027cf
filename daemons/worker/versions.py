"""Versions of what decides numbers, read from package metadata: nothing is imported for it."""

import platform

from digend import __version__
from digend.extras import installed_version
from digend.wire.workers import Versions

NUMBERS = ("torch", "diffusers", "transformers", "peft")


def installed_versions() -> Versions:
    """What HELLO says; a package that is missing is left out."""
    found = {name: installed_version(name) for name in NUMBERS}
    numbers = {name: number for name, number in found.items() if number is not None}
    return Versions(digend=__version__, python=platform.python_version(), numbers=numbers)
