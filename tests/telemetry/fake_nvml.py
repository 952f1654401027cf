"""The fake of NVML's library, compiled, and the file that says how it behaves; both may change while it is used."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
UUID = "8f2a1c6e-0b1d-4c5f-9a77-1f0e5d3c2b1a"
LIBRARY = "libnvidia-ml.so.1"

FINE: dict[str, int] = {
    "sm_clock": 1980,
    "max_sm_clock": 1980,
    "reasons": 0,
    "free": 60 * 2**30,
    "total": 80 * 2**30,
    "utilization": 97,
    "power": 612_000,
    "temperature": 61,
    f"uuid GPU-{UUID}": 1,
}


def compile_fake(folder: Path, *options: str) -> Path:
    """Returns the folder for LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *options, "-o", str(folder / LIBRARY), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


class FakeNvml:
    """One behaviour file; `environment` makes a child process find the fake."""

    def __init__(self, library: Path, file: Path) -> None:
        self.library = library
        self._file = file
        self.says()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML": str(self._file)}

    def says(self, *more: str, **changes: int) -> None:
        """From the next call on: a GPU that is fine, but for `changes` and lines such as "hang nvmlInit 1"."""
        lines = [f"{name} {value}" for name, value in {**FINE, **changes}.items()]
        new = self._file.with_suffix(".new")
        new.write_text("\n".join([*lines, *more]) + "\n", encoding="ascii")
        new.replace(self._file)
