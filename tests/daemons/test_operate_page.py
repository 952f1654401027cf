"""docs/operate.md names commands, verbs, units and files that exist."""

import re
import shlex
from pathlib import Path

from clients.main import VERBS
from daemons.main import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.splitlines()]
UNITS = {path.name for path in (ROOT / "systemd").glob("*.service")}


def test_commands_of_digend_exist_with_their_options() -> None:
    lines = [shlex.split(line) for line in LINES if line.startswith("digend ")]
    assert lines
    for _, name, *words in lines:
        options = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_verbs_of_digenctl_exist() -> None:
    assert {shlex.split(line)[1] for line in LINES if line.startswith("digenctl ")} <= VERBS.keys()


def test_units_exist() -> None:
    named = set(re.findall(r"`(digend[\w-]*(?:@\w*)?\.service)`", PAGE))
    assert {re.sub(r"@\w+", "@", name) for name in named} == UNITS
