"""Boxes in network namespaces, with keys, each a `digend up` of its own: a cluster of hosts without machines to boot.

Owns folders, keys and processes; nothing of them outlives the block. Must not know what the network is like.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from digend.exitcodes import ExitCode
from tests.e2e.boxes import end
from tests.e2e.cluster import KEEP, PATIENCE_S, ROOT, environment, short_folder, wait_until
from tests.lab.network import ADDRESSES, Network

PORT, DATA_PORT = 5757, 5760
TIMING = {"torpid_s": 10.0, "lost_s": 60.0}
"""One core or two for all of the hosts."""


@dataclass(frozen=True)
class Boxes:
    """Running boxes; the first has the driver. `ups` are their `digend up`, in order."""

    folder: Path
    network: Network
    names: tuple[str, ...]
    ups: list["subprocess.Popen[bytes]"]

    def digenctl(
        self, *words: str, code: int = ExitCode.OK, seconds: float = PATIENCE_S
    ) -> "subprocess.CompletedProcess[str]":
        """On the first box, which must end with `code`."""
        node = str(self.folder / f"{self.names[0]}.toml")
        command = [*self.network.inside(0), sys.executable, "-m", "clients", *words, "--node", node]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Lines of `digenctl nodes`, by worker."""
        lines = json.loads(self.digenctl("nodes", "--json").stdout)["nodes"]
        return {line["name"]: line for line in lines}

    def start_again(self, index: int) -> None:
        """Another `digend up` of a box, once the one before has ended."""
        self.ups[index] = _start(self.folder, self.network, index, self.names[index])

    def stop(self) -> list[int]:
        """As a person does, the first one last, because the others report to it; exit codes."""
        for up in reversed(self.ups):
            end(up)
        return [up.returncode for up in self.ups]


@contextmanager
def started(
    network: Network, roles: Mapping[str, Mapping[str, Any]], keys: Mapping[str, Any] | None = None
) -> Iterator[Boxes]:
    """Boxes by name, each with its roles, in the network's namespaces; ready once all workers have joined.

    `keys`: more for `[keys]` of all of them.
    """
    folder = short_folder()
    boxes = Boxes(folder, network, tuple(roles), [])
    try:
        _make_keys(folder, roles)
        for index, (name, table) in enumerate(roles.items()):
            _write_node(folder, index, name, table, keys or {})
        boxes.ups.extend(_start(folder, network, index, name) for index, name in enumerate(roles))
        wait_until(lambda: _all_ready(boxes), "all boxes are ready")
        yield boxes
    finally:
        boxes.stop()
        if not KEEP:
            shutil.rmtree(folder, ignore_errors=True)


def log_of(boxes: Boxes, name: str) -> str:
    return (boxes.folder / f"{name}.log").read_text("utf-8", "replace")


def _make_keys(folder: Path, roles: Mapping[str, Mapping[str, Any]]) -> None:
    listed = ""
    for index, (name, table) in enumerate(roles.items()):
        flags = [word for role in table for word in ("--role", role)] + (["--role", "client"] if index == 0 else [])
        command = [sys.executable, "-m", "clients", "keygen", name, *flags, "--out", str(folder / f"{name}.key")]
        listed += subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        ).stdout
    (folder / "keys.toml").write_text(listed)


def _write_node(folder: Path, index: int, name: str, roles: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    table = {
        "name": name,
        "address": f"tcp://{ADDRESSES[0]}:{PORT}",
        "data": f"tcp://{ADDRESSES[index]}",
        "data_port": DATA_PORT,
        "state": str(folder / name),
        "runs": str(folder / "runs" if "recorder" in roles else folder / name / "runs"),
        "keys": {"private": f"{name}.key", "allowed": "keys.toml", **keys},
        "timing": TIMING,
        **roles,
    }
    (folder / f"{name}.toml").write_text(tomli_w.dumps(table))


def _start(folder: Path, network: Network, index: int, name: str) -> "subprocess.Popen[bytes]":
    words = ["-m", "daemons.main", "up", str(folder / f"{name}.toml"), "--ready-file", str(folder / f"{name}.ready")]
    command: Sequence[str] = [*network.inside(index), sys.executable, *words]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _all_ready(boxes: Boxes) -> bool:
    for name, up in zip(boxes.names, boxes.ups, strict=True):
        assert up.poll() is None, f"{name} ended with {up.returncode}\n{log_of(boxes, name)}"
    return all((boxes.folder / f"{name}.ready").exists() for name in boxes.names)
