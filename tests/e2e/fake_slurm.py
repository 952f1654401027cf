"""A fake of Slurm, as much of it as a batch script sees: the environment of a heterogeneous job, and `srun` for one of
its components. Every host is this machine.

Checked against Slurm 22.05 on one machine with three slurmd: the names of the variables, the numbering of nodes within
a component, one task a node at once.
"""

import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SRUN = '''#!PYTHON
"""srun --het-group=N [OPTION]... COMMAND...: the command once for each node of the component, all at once."""

import os
import signal
import subprocess
import sys

words = sys.argv[1:]
options = [word for word in words[: next(at for at, word in enumerate(words) if not word.startswith("--"))]]
command = words[len(options) :]
(group,) = (option.partition("=")[2] for option in options if option.startswith("--het-group="))
count = int(os.environ[f"SLURM_JOB_NUM_NODES_HET_GROUP_{group}"])
tasks = [
    subprocess.Popen(command, env={**os.environ, "SLURM_NODEID": str(at), "SLURMD_NODENAME": f"n{group}{at}"})
    for at in range(count)
]
signal.signal(signal.SIGTERM, lambda number, frame: [task.send_signal(number) for task in tasks])
sys.exit(max(task.wait() for task in tasks))
'''


def install(folder: Path, programs: Mapping[str, Sequence[str]]) -> Path:
    """A folder for PATH with `srun`, a `hostname` that every machine can be reached by, and `programs` by name."""
    folder.mkdir()
    _write(folder / "srun", SRUN.replace("PYTHON", sys.executable))
    _write(folder / "hostname", "#!/bin/sh\necho localhost\n")
    for name, command in programs.items():
        _write(folder / name, f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    return folder


def environment(submit_dir: Path, nodes: Sequence[int]) -> dict[str, str]:
    """Of a batch script whose job has so many nodes in each component."""
    counts = {f"SLURM_JOB_NUM_NODES_HET_GROUP_{group}": str(count) for group, count in enumerate(nodes)}
    return {"SLURM_JOB_ID": "1", "SLURM_HET_SIZE": str(len(nodes)), "SLURM_SUBMIT_DIR": str(submit_dir), **counts}


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
