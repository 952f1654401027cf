"""Versions of what decides numbers, read from package metadata and the environment: nothing is imported for it."""

import os
import platform

from digend import __version__
from digend.extras import installed_version
from digend.wire.workers import Versions

NUMBERS = ("torch", "diffusers", "transformers", "peft")
ATTENTION, USUAL_ATTENTION = "DIFFUSERS_ATTN_BACKEND", "native"
"""The variable by which a process says which attention diffusers takes, and what it takes where nothing is said."""


def installed_versions() -> Versions:
    """What HELLO says; a package that is missing is left out. `attention_backend` is what the process has where a job
    names none."""
    found = {name: installed_version(name) for name in NUMBERS}
    numbers = {name: number for name, number in found.items() if number is not None}
    if "diffusers" in numbers:
        numbers["attention_backend"] = os.environ.get(ATTENTION, USUAL_ATTENTION)
    return Versions(digend=__version__, python=platform.python_version(), numbers=numbers)
