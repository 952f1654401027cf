"""A program as `up` would start: `python -m tests.up.child NAME FOLDER LIFELINE`. FOLDER/NAME.mode says how it behaves.

It adds "NAME started PID", "NAME reloaded" and "NAME stopped" to FOLDER/story.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from daemons.lifeline import hold


def main(name: str, folder: Path, lifeline: int) -> int:
    mode = folder / f"{name}.mode"
    behaviour = mode.read_text(encoding="utf-8") if mode.exists() else "serve"
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: None if behaviour == "stubborn" else stop.set())
    signal.signal(signal.SIGHUP, lambda *_: tell(folder, f"{name} reloaded"))
    hold(lifeline, grace_s=0.5)
    tell(folder, f"{name} started {os.getpid()}")
    print(f"hello from {name}", file=sys.stderr, flush=True)
    if behaviour.startswith("exit"):
        return int(behaviour.split()[1])
    while not stop.wait(0.02):
        pass
    print("no pipe, no problem", file=sys.stderr, flush=True)
    tell(folder, f"{name} stopped")
    return 42


def tell(folder: Path, line: str) -> None:
    with (folder / "story").open("a", encoding="utf-8") as story:
        story.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
