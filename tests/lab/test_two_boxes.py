"""Two machines with keys and a wire between them: "Two boxes" of docs/operate.md, command by command.

Only what a lab has not is replaced: scp by a copy of the file, cuda:0 by cpu, job.toml by a job of seconds, and the
editor by what a person would do with it.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.cluster import short_job, wait_until
from tests.lab.host import Host, booted
from tests.lab.jobs import JOB, PROMPTS
from tests.lab.network import Network, connected

PAGE = (Path(__file__).parents[2] / "docs/operate.md").read_text("utf-8")
SECTION = PAGE.partition("## Two boxes\n")[2].partition("\n## ")[0]
LIST = "/etc/digend/keys.toml"
GENERATOR = "digend-generator@0"


@dataclass
class Boxes:
    """Both machines, and what was done on them, as text."""

    hosts: dict[str, Host]
    log: list[str] = field(default_factory=list)

    def follow(self, heading: str, **replaced: str) -> None:
        """Every block below a heading of the page, in order."""
        text = SECTION.partition(f"### {heading}\n")[2].partition("\n### ")[0]
        blocks = re.findall(r"```(?:sh|toml)\n# (box-a|box-b|both)(?:: (\S+))?\n(.*?)```", text, flags=re.DOTALL)
        assert blocks, heading
        for where, path, body in blocks:
            for name in self.hosts if where == "both" else [where]:
                if path:
                    self.write(name, path, body.replace("cuda:0", "cpu"))
                    continue
                for command in body.splitlines():
                    self.do(name, replaced.get(command, command))

    def follow_section(self, heading: str, **replaced: str) -> None:
        """The block below a heading of the page that each box does for itself."""
        text = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        (body,) = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        for name in self.hosts:
            for command in body.splitlines():
                self.do(name, replaced.get(command, command))

    def write(self, name: str, path: str, text: str) -> None:
        self.log.append(f"{name}# editor {path}\n{text}")
        self.hosts[name].write(path, text)

    def do(self, name: str, command: str) -> None:
        self.log.append(f"{name}# {command}")
        if command.startswith("scp "):
            source, target = command.split()[1:]
            other, _, path = target.partition(":")
            self.hosts[other].write(path, self.hosts[name].run("cat", source))
            return
        done = self.hosts[name].execute("sh", "-c", command)
        self.log.append((done.stdout + done.stderr).rstrip())
        odd = 3 if command.startswith("digend doctor") else 0  # nobody is at the address yet
        if done.returncode not in (0, odd):
            journal = self.hosts[name].run("journalctl", "-u", "digend*", "-n", "40", "--no-pager")
            pytest.fail("\n".join([*self.log, f"ended with {done.returncode}", journal]))


@pytest.fixture(scope="module")
def network(lab: None) -> Iterator[Network]:
    with connected() as made:
        yield made


@pytest.fixture(scope="module")
def boxes(network: Network) -> Iterator[Boxes]:
    """Two machines with digend installed and nothing set."""
    mark = uuid4().hex[:6]
    with ExitStack() as stack:
        hosts = {}
        for name, namespace in zip(("box-a", "box-b"), network.namespaces, strict=True):
            folder = Path(tempfile.gettempdir(), f"digend-lab-{name}-{mark}")
            hosts[name] = stack.enter_context(booted(folder, namespace=namespace))
            hosts[name].systemctl("disable", "--now", "digend")  # which the page does later
            hosts[name].run("ln", "-sf", "/opt/digend/bin/digend", "/opt/digend/bin/digenctl", "/usr/local/bin/")
        yield Boxes(hosts)


def test_the_page_to_the_letter(boxes: Boxes, tmp_path: Path) -> None:
    a, b = boxes.hosts["box-a"], boxes.hosts["box-b"]
    boxes.follow("Settings of both")
    boxes.follow("Keys of both")
    short = [each.replace(str(tmp_path / "prompts.txt"), PROMPTS) for each in short_job(tmp_path)]
    a.write(PROMPTS, (tmp_path / "prompts.txt").read_text())
    options = " ".join(f"--set '{each}'" for each in short)
    boxes.follow(
        "Start both",
        **{"digenctl submit job.toml --watch": f"digenctl submit {JOB} --watch --id two-boxes {options}"},
    )
    nodes = {node["name"]: node["traffic"] for node in a.digenctl("nodes")["nodes"]}
    assert nodes == dict.fromkeys(("box-a/recorder/0", "box-a/trainer/0", "box-b/generator/0"), "encrypted")
    assert a.digenctl("show", "job", "two-boxes")["job"]["state"] == "completed"
    report = "/var/lib/digend/runs/two-boxes/report.html"
    wait_until(lambda: a.execute("test", "-s", report).returncode == 0, "the report is written")
    assert b.journal("-u", GENERATOR, "DIGEND_JOB=two-boxes") or b.says(GENERATOR, "joined")

    boxes.follow("A person's key")
    boxes.follow("Keys as credentials of systemd")
    assert b.show(GENERATOR, "ActiveState") == "active"
    wait_until(lambda: "box-b/generator/0" in _present(a), "the generator is back, with the credential")

    # The entry of box-b goes, as by a person with an editor; box-b does not know.
    entries = a.run("cat", LIST).split("[[key]]")
    kept = "[[key]]".join(each for each in entries if 'name = "box-b"' not in each)
    public = next(each for each in entries if 'name = "box-b"' in each).split('public = "')[1].split('"')[0]
    a.write("/root/kept.toml", kept)
    boxes.follow("One of them less", **{"editor /etc/digend/keys.toml": f"cp /root/kept.toml {LIST}"})
    wait_until(lambda: b.show(GENERATOR, "ActiveState") == "failed", "the generator was told and ended")
    assert b.show(GENERATOR, "ExecMainStatus") == "78"
    b.execute("systemctl", "reset-failed", GENERATOR)
    assert b.execute("systemctl", "start", GENERATOR).returncode != 0
    assert b.show(GENERATOR, "ExecMainStatus") == "78"
    assert b.says(GENERATOR, f"refused the key {public}: it is not in the list there (keys.toml)")
    assert a.says("digend-driver", public), "the driver says whose key it was"
    said = [entry for entry in a.journal("-u", "digend-driver") if public in str(entry["MESSAGE"])]
    boxes.log += [f"box-a driver: {entry['MESSAGE']}" for entry in said]
    boxes.log += [f"box-b generator: {entry['MESSAGE']}" for entry in b.journal("-u", GENERATOR)[-6:]]
    print("\n".join(boxes.log))


@pytest.mark.matrix
@pytest.mark.matrix
def test_upgrade_and_remove_to_the_letter(boxes: Boxes, tmp_path: Path) -> None:
    """After the page above: box-b's key is listed again, both are upgraded between two jobs, then both are removed."""
    a, b = boxes.hosts["box-a"], boxes.hosts["box-b"]
    a.write(LIST, b.run("cat", LIST))
    a.systemctl("reload", "digend")
    epoch = _epoch(a)
    boxes.follow_section("Upgrade", **{"/opt/digend/bin/pip install --upgrade '/path/to/the/checkout[worker]'": "true"})
    wait_until(lambda: "box-b/generator/0" in _present(a), "both are back")
    assert _epoch(a) == epoch + 1
    options = [word for each in short_job(tmp_path) for word in ("--set", each.replace(str(tmp_path), "/root"))]
    a.write("/root/prompts.txt", (tmp_path / "prompts.txt").read_text())
    a.run("/opt/digend/bin/digenctl", "submit", JOB, "--wait", "--id", "upgraded", *options)
    states = {job["id"]: job["state"] for job in a.digenctl("jobs")["jobs"]}
    assert states == {"two-boxes": "completed", "upgraded": "completed"}

    boxes.follow_section("Remove")
    for host in (a, b):
        assert not host.run("sh", "-c", "ps -eo args | grep '[/]opt/digend' || true").strip()
        left = host.run("sh", "-c", "find / -xdev -iname '*digend*' -not -path '/proc/*' -not -path '/sys/*' || true")
        ours = [path for path in left.splitlines() if not path.startswith(("/opt/lab", "/var/lib/digend", "/tmp"))]
        boxes.log.append(f"left: {ours}")
        assert not [path for path in ours if path.startswith(("/etc", "/usr/local", "/opt", "/run/systemd"))]
        assert host.execute("id", "digend").returncode != 0
        assert "digend" not in host.systemctl("list-unit-files", "--no-legend")
    assert a.execute("test", "-s", "/var/lib/digend/runs/upgraded/report.html").returncode == 0, "what was made stays"
    print("\n".join(boxes.log))


def _present(host: Host) -> set[str]:
    return {node["name"] for node in host.digenctl("nodes")["nodes"] if node["state"] == "idle"}


def _epoch(host: Host) -> int:
    """Whatever else is wrong: status ends with 3 while a worker is slow."""
    status = json.loads(host.execute("/opt/digend/bin/digenctl", "status", "--json").stdout)
    return int(status["epoch"])
