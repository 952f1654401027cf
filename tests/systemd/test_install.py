"""`digend install-units` and `digend node-instances`, as commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daemons.unit_files import CannotInstall, check_program

ROOT = Path(__file__).parents[2]
SERVICES = {f"digend-{name}.service" for name in ("driver", "recorder", "generator@", "trainer@", "reward@")}


def digend(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "daemons.main", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def install(prefix: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return digend("install-units", "--prefix", str(prefix), "--digend", "/opt/digend/bin/digend", *more)


def test_units_generator_and_user_are_written(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert done.returncode == 0, done.stderr
    written = {path.relative_to(tmp_path / "lib").as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}
    assert set(done.stdout.split()) == {str(path) for path in written.values()}
    units = {f"systemd/system/{name}" for name in {*SERVICES, "digend.service"}}
    assert set(written) == {*units, "systemd/system-generators/digend-instances", "sysusers.d/digend.conf"}
    assert written["systemd/system-generators/digend-instances"].stat().st_mode & 0o777 == 0o755
    assert "systemctl enable --now digend" in done.stderr


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_unit_says_who_it_runs_as_and_what_it_starts(tmp_path: Path, name: str) -> None:
    install(tmp_path, "--user", "painter")
    text = (tmp_path / "lib/systemd/system" / name).read_text()
    role = name.removeprefix("digend-").removesuffix(".service")
    slot = " --slot %i" if role.endswith("@") else ""
    expected = f"ExecStart=/opt/digend/bin/digend {role.rstrip('@')} --system{slot}\n"
    assert expected in text
    assert "\nUser=painter\n" in text
    assert not re.search(r"@[A-Z]+@", text)


def test_installing_twice_changes_nothing(tmp_path: Path) -> None:
    install(tmp_path)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    install(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == first


def test_a_program_that_units_cannot_see_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "digend"
    script.write_text("#!/root/venv/bin/python\n")
    with pytest.raises(CannotInstall, match="units do not see /root"):
        check_program(script)
    with pytest.raises(CannotInstall, match="do not see /home"):
        check_program(Path("/home/me/venv/bin/digend"))
    with pytest.raises(CannotInstall, match="absolute"):
        check_program(Path("venv/bin/digend"))
    check_program(Path("/opt/digend/bin/digend"))
    done = digend("install-units", "--prefix", str(tmp_path), "--digend", str(script))
    assert done.returncode == 78
    assert "/opt/digend" in done.stderr
    assert not (tmp_path / "lib").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("a file")
    done = install(tmp_path)
    assert done.returncode == 1
    assert f"cannot write {tmp_path}/lib" in done.stderr


def test_instances_of_a_node_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("recorder = true\n[driver]\n[generator]\nslots = 2\n[trainer]\n")
    assert digend("node-instances", str(path)).stdout.split() == [
        "digend-driver.service",
        "digend-recorder.service",
        "digend-trainer@0.service",
        "digend-generator@0.service",
        "digend-generator@1.service",
    ]


def test_instances_of_a_box(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "digend.toml").write_text("[driver]\n[generator]\nslots = 2\n")
    (tmp_path / "conf.d" / "less.toml").write_text("[generator]\nslots = 1\n")
    command = [sys.executable, "-m", "daemons.main", "node-instances", "--system"]
    environ = {**os.environ, "DIGEND_ETC": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["digend-driver.service", "digend-generator@0.service"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no key has the role driver"),
        ("[[kee]]\n", "kee: unknown key; did you mean key?"),
        ("[[key]\n", "keys.toml:1"),
        (None, "no such file"),
    ],
)
def test_a_reload_reads_the_list_of_keys_too(tmp_path: Path, text: str | None, told: str) -> None:
    (tmp_path / "node.toml").write_text('[driver]\n[keys]\nallowed = "keys.toml"\nprivate = "key"\n')
    if text is not None:
        (tmp_path / "keys.toml").write_text(text)
    assert digend("node-instances", str(tmp_path / "node.toml")).returncode == 0, (
        "units start, daemons say what is wrong"
    )
    done = digend("node-instances", "--keys", str(tmp_path / "node.toml"))
    assert done.returncode == 78
    assert told in done.stderr
    assert "node-instances --system --keys" in (ROOT / "systemd" / "digend.service").read_text()


def test_instances_of_a_bad_node_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[drivr]\n")
    done = digend("node-instances", str(path))
    assert done.returncode == 78
    assert "did you mean driver" in done.stderr
