"""A dump on its way to disk: parts with their names, what is missing and why, one archive at the end.

Must not know what parts there are. Invariant: the archive is there whole or not at all; a part that cannot be made is
named in `contents.txt` with its reason and stops nothing.
"""

import io
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from clients.secrets_in_text import MASK

CONTENTS = "contents.txt"

NOTE = """\
Everything that digend's authors need to look into a problem. Values of keys and variables whose names say that they are
secret are masked, and so is what equals one of them in any other part but the journal. Private key files are never
read. Paths, prompts and host names are as they are; so are log lines and the journal: look through them before you give
this to somebody.
"""


class Missing(Exception):
    """A part that cannot be had; the message says why."""


@dataclass(slots=True)
class Dump:
    """`parts` by their name in the archive, bytes or a file to be read when it is written. `secrets`: what no part of
    bytes may have."""

    folder: str
    parts: dict[str, bytes | Path] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def add(self, name: str, make: Callable[[], str | bytes | Path]) -> None:
        """Adds a part. `make` may raise Missing, OSError."""
        try:
            made = make()
        except (Missing, OSError) as error:
            self.missing[name] = str(error)
        else:
            self.parts[name] = made.encode() if isinstance(made, str) else made

    def add_all(self, made: Iterable[tuple[str, str]]) -> None:
        for name, text in made:
            self.add(name, lambda text=text: text)  # type: ignore[misc]

    def contents(self) -> str:
        there = "".join(f"  {name}\n" for name in sorted(self.parts))
        missing = "".join(f"  {name}: {why}\n" for name, why in sorted(self.missing.items()))
        return f"{NOTE}\nHere:\n{there}" + (f"\nMissing:\n{missing}" if missing else "")

    def write(self, path: Path) -> None:
        """Raises OSError, and leaves nothing behind then."""
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            with tarfile.open(unfinished, "w:gz") as archive:
                for name, part in sorted({**self.parts, CONTENTS: self.contents().encode()}.items()):
                    self._put(archive, name, part)
            unfinished.chmod(0o600)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _put(self, archive: tarfile.TarFile, name: str, part: bytes | Path) -> None:
        if isinstance(part, Path):
            archive.add(part, f"{self.folder}/{name}", recursive=False)
            return
        for secret in sorted(self.secrets, key=len, reverse=True):
            part = part.replace(secret.encode(), MASK.encode())
        member = tarfile.TarInfo(f"{self.folder}/{name}")
        member.size, member.mtime, member.mode = len(part), int(time.time()), 0o644
        archive.addfile(member, io.BytesIO(part))
