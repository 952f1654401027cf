"""The systemd generator as systemd runs it, on the files of a test."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "systemd" / "digend-instances"


@dataclass(frozen=True)
class Made:
    """What it put into its output folder. `refused`: why it could not be sure of the files, or nothing."""

    wants: dict[str, Path]
    refused: str


def write(etc: Path, files: Mapping[str, str]) -> None:
    """What /etc/digend holds in a test; nothing else."""
    shutil.rmtree(etc, ignore_errors=True)
    for name, text in files.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_bytes(text.encode())


def generate(folder: Path, files: Mapping[str, str]) -> Made:
    """Runs it for these files of /etc/digend, by name; `folder` is empty."""
    script = folder / "lib" / "system-generators" / SCRIPT.name
    script.parent.mkdir(parents=True, exist_ok=True)
    (folder / "lib" / "system").mkdir(exist_ok=True)
    shutil.copy(SCRIPT, script)
    etc, output = folder / "etc", folder / "output"
    write(etc, files)
    shutil.rmtree(output, ignore_errors=True)
    environment = {**os.environ, "DIGEND_ETC": str(etc)}
    subprocess.run([str(script), str(output), "unused", "unused"], env=environment, check=True, capture_output=True)
    links = (output / "digend.service.wants").glob("*")
    drop_in = output / "digend.service.d" / "settings.conf"
    return Made(
        wants={link.name: link.readlink() for link in links},
        refused=drop_in.read_text() if drop_in.exists() else "",
    )
