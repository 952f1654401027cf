"""The systemd generator reads TOML by itself: it makes of files what the real parser does, or refuses them."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from daemons.unit_files import instances
from digend.config.errors import ConfigError
from digend.config.layers import Places
from digend.config.loader import load_node, load_settings
from tests.systemd.units import SCRIPT, Made, generate, write

EXAMPLES = sorted((Path(__file__).parents[2] / "configs" / "nodes").glob("*.toml"))

NAMES = ("digend.toml", "conf.d/10-roles.toml", "conf.d/Zoo.toml", "conf.d/a b.toml")
"""Of files, in the order of reading."""

NASTY = (
    "[driver]",
    "[generator]",
    "recorder = true",
    "slots = 7",
    "#",
    "x # y",
    "[",
    "]",
    "driver = {}",
    'a"b',
    "a'b",
    "\\",
)
"""What a string or a comment may hold without meaning anything."""


def units_of(*texts: str) -> set[str]:
    """By the real parser, of digend.toml and what is in conf.d. Raises ConfigError."""
    with TemporaryDirectory(prefix="dg") as folder:
        write(Path(folder), dict(zip(NAMES, texts, strict=False)))
        return set(instances(load_settings(Places(system=True, etc=folder), {}).config))


def made_of(*texts: str) -> Made:
    with TemporaryDirectory(prefix="dg") as folder:
        return generate(Path(folder), dict(zip(NAMES, texts, strict=False)))


def quoted(text: str) -> st.SearchStrategy[str]:
    basic = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    forms = [basic] if "'" in text else [basic, f"'{text}'"]
    return st.sampled_from(forms)


strings = st.sampled_from([*NASTY, "cpu", "cuda:0"]).flatmap(quoted)
comments = st.sampled_from(["", "", " # plain", *(f"# {text}" for text in NASTY)])
spaces = st.sampled_from(["", "", " ", "\t", "  "])
names = st.sampled_from(["driver", "generator", "trainer", "reward"])
numbers = st.sampled_from(["0", "1", "2", "3", "1", "2", "+2", "0x2", "1_0"])
booleans = st.sampled_from(["true", "false"])


@st.composite
def keys(draw: st.DrawFn, name: str) -> str:
    mark = draw(st.sampled_from(["", "", "", '"', "'"]))
    escaped = draw(st.sampled_from([False] * 29 + [True]))
    return f'"\\u{ord(name[0]):04x}{name[1:]}"' if escaped else f"{mark}{name}{mark}"


@st.composite
def lists(draw: st.DrawFn) -> str:
    items = draw(st.lists(strings, min_size=3, max_size=4))
    gap = draw(st.sampled_from([" ", "\n", "\n  "]))
    lines = [f"{item},{draw(comments) if gap != ' ' else ''}" for item in items]
    return "[" + gap + gap.join(lines) + gap + "]"


@st.composite
def assignments(draw: st.DrawFn, name: str, value: str) -> str:
    before, around = draw(spaces), draw(spaces)
    return f"{before}{draw(keys(name))}{around}={around}{value}{draw(comments)}"


@st.composite
def tables(draw: st.DrawFn, name: str) -> str:
    space = draw(spaces)
    lines = [f"{draw(spaces)}[{space}{draw(keys(name))}{space}]{draw(comments)}"]
    if name in ("generator", "trainer", "reward"):
        if draw(st.booleans()):
            lines.append(draw(assignments("devices", draw(lists()))))
        if draw(st.booleans()):
            lines.append(draw(assignments("slots", draw(numbers))))
    if name == "driver" and draw(st.booleans()):
        lines.append(draw(assignments("journal", draw(strings))))
    return "\n".join(lines)


@st.composite
def tops(draw: st.DrawFn) -> list[str]:
    """What is before the first header."""
    lines = [draw(comments), draw(assignments("reward_paths", draw(lists())))]
    if draw(st.booleans()):
        lines.append(draw(assignments("recorder", draw(booleans))))
    if draw(st.integers(0, 9)) == 0:
        lines.append(draw(assignments("runs", f'"""\n{draw(st.sampled_from(NASTY[:4]))}\n"""')))
    if draw(st.integers(0, 7)) == 0:
        lines.append(
            draw(st.sampled_from(["driver = {}", "generator.slots = 2", "reward = { slots = 2 }", "trainer={ }"]))
        )
    return draw(st.permutations(lines))


@st.composite
def node_files(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(names, unique=True))
    parts = [*draw(tops()), *(draw(tables(name)) for name in chosen), draw(comments)]
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    return mark + "\n".join(parts).replace("\n", end)


@settings(max_examples=80)
@given(st.lists(node_files(), min_size=1, max_size=len(NAMES)))
@example(['runs = """\n[driver]\n"""\n'])
@example(['reward_paths = [\n"[driver]",\n"recorder = true",\n]\n'])
@example(["[generator]\nslots = 2\n[timing]\nlost_s = 20.0\n"])
@example(["recorder = true\n[generator]\nslots = 2", "recorder = false # = true\n", "[generator]\n", "slots = 1\n"])
def test_the_generator_agrees_with_the_parser_or_refuses(texts: list[str]) -> None:
    try:
        expected = units_of(*texts)
    except ConfigError:
        assume(False)
        raise
    made = made_of(*texts)
    event("refused" if made.refused else "understood")
    assert made.refused or set(made.wants) == expected


def test_the_last_file_that_says_it_counts() -> None:
    base = "recorder = true\n[driver]\n[generator]\nslots = 3\n"
    texts = (base, "recorder = false\n[generator]\nslots = 2\n[trainer]\n", "[generator]\n")
    expected = {"digend-driver", "digend-trainer@0", "digend-generator@0", "digend-generator@1"}
    assert set(made_of(*texts).wants) == units_of(*texts) == {f"{name}.service" for name in expected}


def test_what_is_no_file_of_conf_d_is_not_read(tmp_path: Path) -> None:
    files = {"digend.toml": "[driver]\n", "conf.d/.hidden.toml": "[trainer]\n", "conf.d/off.toml.dpkg": "[trainer]\n"}
    assert set(generate(tmp_path, files).wants) == {"digend-driver.service"}
    assert set(instances(load_settings(Places(system=True, etc=str(tmp_path / "etc")), {}).config)) == {
        "digend-driver.service"
    }


def test_a_file_of_conf_d_is_named_where_it_is_refused(tmp_path: Path) -> None:
    made = generate(tmp_path, {"digend.toml": "[driver]\n\n", "conf.d/it's $HOME.toml": "# x\ndriver = {}\n"})
    assert not made.wants
    assert "conf.d/its HOME.toml, line 2: write it as a table" in made.refused


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_understood(path: Path) -> None:
    assert set(made_of(path.read_text()).wants) == set(instances(load_node(path)))


@pytest.mark.parametrize(
    "text",
    [
        '# comment\nname = "box"\n recorder = true  # yes\n[driver]\n[ generator ]  # two\n  slots=2\n[trainer]\n',
        "\ufeffrecorder = false\r\n[\"driver\"]\r\n['reward']\r\nslots = 2 \r\n",
        '[generator]\ndevices = [\n  "cpu",\n  "cpu",  # [driver]\n]\nslots = 2\n\n[timing]\ntorpid_s = 5.0',
        'reward_paths = ["recorder = true", "[driver]"]\n[trainer]\n',
        "[generator]\nslots = 0\n[reward]\n",
        '[trainer]\ndevice = "cpu"\nslots = 2\n[driver]\n',
        "[trainer]\nslots = 0\n",
        "",
    ],
)
def test_what_people_write_is_understood(text: str) -> None:
    made = made_of(text)
    assert not made.refused
    assert set(made.wants) == units_of(text)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("[trainer]\n[driver]\njournal = '''\nx'''\n", 3, "several lines"),
        ("driver = {}\n", 1, "table of its own: [driver]"),
        ("\ngenerator.slots = 2\n", 2, "table of its own: [generator]"),
        ("[generator]\nslots = 0x2\n", 2, "plain digits"),
        ('["dri\\u0076er"]\n', 1, "backslash"),
    ],
)
def test_what_it_cannot_be_sure_of_makes_digend_fail_with_the_reason(text: str, line: int, why: str) -> None:
    """By way of a drop-in: a generator's own messages are easily missed."""
    made = made_of(text)
    assert not made.wants
    assert f"line {line}: " in made.refused
    assert why in made.refused
    command = made.refused.splitlines()[-1].removeprefix("ExecStart=")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.strip().endswith(why) or why in done.stderr


def test_each_instance_is_a_link_to_its_template(tmp_path: Path) -> None:
    made = generate(tmp_path, {"digend.toml": "[driver]\n[generator]\nslots = 11\n"})
    system = tmp_path.resolve() / "lib" / "system"
    assert made.wants["digend-driver.service"] == system / "digend-driver.service"
    assert made.wants["digend-generator@10.service"] == system / "digend-generator@.service"
    assert len(made.wants) == 12


def test_without_a_file_nothing_is_made(tmp_path: Path) -> None:
    environment = {**os.environ, "DIGEND_ETC": str(tmp_path / "none")}
    subprocess.run([str(SCRIPT), str(tmp_path / "output")], env=environment, check=True)
    assert not (tmp_path / "output").exists()


def test_it_is_short() -> None:
    assert len(SCRIPT.read_text().splitlines()) <= 45
