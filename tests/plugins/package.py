"""The package of docs/write-a-package.md, written out as the page has it and installed by pip."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-package.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|toml|sh)\n(.*?)```", PAGE, flags=re.DOTALL)
FILES = {found[1]: text for kind, text in BLOCKS if kind != "sh" and (found := re.match(r"# ([\w./-]+)\n", text))}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
SITE = "site-packages"


def follow(folder: Path) -> Path:
    """Do what the page says in an empty folder. Returns the one that is then like site-packages.

    pip installs into it, without an index, instead of into this environment.
    """
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "pocket-prompts.txt").write_text("red\na red sky\nrust\n")
    for command in COMMANDS:
        program, *words = command.split()
        if program == "pip":
            words = ["-m", "pip", *words, "--no-index", "--no-build-isolation", "--target", SITE, "-q"]
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return folder / SITE
