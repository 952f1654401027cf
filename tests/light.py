"""An environment with the base of digend and no worker's packages: what `pip install digend` gives, made offline.

Invariant: torch and whatever else only extras bring cannot be imported there.
"""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]


def base() -> list[str]:
    """Names of what the base depends on."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return [re.split(r"[>=]", line)[0] for line in lines]


def light_python(folder: Path) -> Path:
    """The interpreter of a second venv: links to the base's packages of this one and to what those need."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    todo, done = base(), set[str]()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        found = distribution(name)
        todo += [
            re.split(r"[^\w.-]", each)[0] for each in found.requires or () if "extra ==" not in each and ";" not in each
        ]
        for file in found.files or ():
            top = file.parts[0]
            source = Path(str(found.locate_file(top)))
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(source)
    return folder / "bin" / "python"
