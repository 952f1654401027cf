"""What this box says of a client's side: the address, who may use it, what lies in the run folders."""

import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from clients.this_box import ThisBox
from digend import __version__
from digend.findings import Finding, room
from digend.net.addresses import is_local, socket_path

ABANDONED_S = 3600.0
"""A checkpoint that is being written is younger."""

UNFINISHED = ".unfinished-"
REPLACED = ".replaced-"


def check_digenctl() -> Iterator[Finding]:
    yield Finding("ok", "digenctl", f"{__version__}, Python {platform.python_version()}, {Path(__file__).parents[1]}")


def check_address(address: str) -> Iterator[Finding]:
    """Its socket is there, and this user may write to it. `address` is a resolved one."""
    path = socket_path(address)
    if path is not None and not path.exists():
        yield Finding("error", "address", f"{address}: there is no such socket; is the driver on this box, and up?")
    elif path is not None and not os.access(path, os.W_OK):
        yield Finding("error", "address", f"{address}: permission denied; join the driver's group and log in again")
    else:
        yield Finding("ok", "address", address)


def check_keys(address: str) -> Iterator[Finding]:
    """Of a driver that has answered: within a box nobody needs one, from elsewhere it accepted what it was shown."""
    within = is_local(address)
    how = "none needed: the driver is reached within this box" if within else "the driver accepts this client's key"
    yield Finding("ok", "keys", how)


def check_box(box: ThisBox) -> Iterator[Finding]:
    """Room for state and runs of this box, and checkpoints that nobody finishes any more."""
    for what, folder in (("state", box.state), ("runs", box.runs)):
        if folder.is_dir():
            yield room(what, str(folder), shutil.disk_usage(folder).free)
    stale = list(stale_checkpoints(box.runs, time.time()))
    for folder in stale:
        yield Finding("warning", "stale checkpoint", f"{folder} was never finished: it may be removed")
    if box.runs.is_dir() and not stale:
        yield Finding("ok", "checkpoints", f"none half-written in {box.runs}")


def stale_checkpoints(runs: Path, now_s: float) -> Iterator[Path]:
    """Folders of checkpoints whose writer is gone."""
    for folder in sorted(runs.glob("*/checkpoints/.*")):
        hidden = folder.name.startswith((UNFINISHED, REPLACED))
        if hidden and now_s - folder.stat().st_mtime > ABANDONED_S:
            yield folder
