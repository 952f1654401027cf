"""What is wrong with a configuration, in words for the person who wrote it.

A `Problem` is one mistake at one key; a `ConfigError` holds all that were found, because a person mends them
together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

MAX_SHOWN = 80
"""Characters of a value that a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`where` is file:line, or what else the value came from; `key` the dotted path, "" for the file."""

    where: str
    key: str
    message: str
    value: str | None = None
    """The value as TOML, None where the key is missing or has none."""
    nearest: str | None = None

    def __str__(self) -> str:
        subject = self.key if self.value is None else f"{self.key} = {shorten(self.value)}"
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return ": ".join(part for part in (self.where, subject, self.message + hint) if part)


class ConfigError(Exception):
    """A job file, node file or prompts file cannot be used. Exit code `ExitCode.BAD_CONFIG`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def require(problems: Sequence[Problem]) -> None:
    """Raises ConfigError where there are problems."""
    if problems:
        raise ConfigError(problems)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, if any does."""
    matches = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def shorten(text: str) -> str:
    """At most `MAX_SHOWN` characters."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
