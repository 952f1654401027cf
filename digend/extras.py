"""What an installation has beyond the base: `digend[worker]`, by package metadata. Nothing is imported for it."""

from importlib.metadata import PackageNotFoundError, version

WORKER = ("torch", "diffusers", "transformers", "peft", "accelerate")
"""What the engine imports."""


def lacking() -> str:
    """Which of a worker's packages are not installed in this environment, and the line that mends it; empty: none."""
    missing = [name for name in WORKER if installed_version(name) is None]
    return f"not installed here: {', '.join(missing)}: pip install 'digend[worker]'" if missing else ""


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
