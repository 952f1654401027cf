"""The systemd generator as systemd runs it, on a node file of a test."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "systemd" / "digend-instances"


@dataclass(frozen=True)
class Made:
    """What it put into its output folder. `refused`: why it could not be sure of the node file, or nothing."""

    wants: dict[str, Path]
    refused: str


def generate(folder: Path, node_file: str) -> Made:
    """Runs it for a node file with this content; `folder` is empty."""
    script = folder / "lib" / "system-generators" / SCRIPT.name
    script.parent.mkdir(parents=True, exist_ok=True)
    (folder / "lib" / "system").mkdir(exist_ok=True)
    shutil.copy(SCRIPT, script)
    path, output = folder / "node.toml", folder / "output"
    path.write_bytes(node_file.encode())
    shutil.rmtree(output, ignore_errors=True)
    environment = {**os.environ, "DIGEND_NODE": str(path)}
    subprocess.run([str(script), str(output), "unused", "unused"], env=environment, check=True, capture_output=True)
    links = (output / "digend.service.wants").glob("*")
    drop_in = output / "digend.service.d" / "node-file.conf"
    return Made(
        wants={link.name: link.readlink() for link in links},
        refused=drop_in.read_text() if drop_in.exists() else "",
    )
