"""`digenctl dump`: what is in it, what is masked, and a journal that can be replayed."""

import asyncio
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from clients.dump_file import Dump
from clients.secrets_in_text import (
    MASK,
    masked_environment,
    masked_text,
    masked_toml,
    values_in_environment,
    values_in_toml,
)
from tests.clients.conftest import ROOT, Digenctl, digenctl_process
from tests.driver.fakes import FakeRecorder, FakeWorker, living
from tests.driver.world import client_of, job_config, node_of, running


def unpacked(archive: Path, folder: Path) -> Path:
    """The one folder in a dump."""
    with tarfile.open(archive) as found:
        found.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


async def ctl(folder: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(digenctl_process, *words, cwd=folder, **environ)


async def test_a_dump_of_a_running_driver_and_of_one_that_is_away(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    node_file = tmp_path / "node.toml"
    node_file.write_text(
        f'name = "local"\naddress = "{node.address}"\nstate = "{node.state}"\nruns = "{node.runs}"\n[driver]\n'
    )
    logs = Path(node.state) / "logs"
    logs.mkdir(parents=True)
    (logs / "driver.log").write_text("2026-07-31 11:58:00Z [info     ] driver started\njudge api_key=k3y\n")
    options = ("dump", "--node", str(node_file), "--json")
    async with (
        running(node),
        living(FakeWorker(node, "generator", "n/generator/0")),
        living(FakeWorker(node, "trainer", "n/trainer/0")),
        living(FakeRecorder(node)),
        client_of(node) as client,
    ):
        job = (await client.submit(job_config())).job
        await client.completed(job)
        result = await ctl(tmp_path, *options, "--out", "live.tar.gz", DIGEND_SECRET="s3cret", HF_TOKEN="hf_123")
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        assert document["missing"] == {}

    inside = unpacked(tmp_path / "live.tar.gz", tmp_path / "live")
    everything = "".join(path.read_text("utf-8", "replace") for path in inside.rglob("*") if path.is_file())
    assert "s3cret" not in everything
    assert "hf_123" not in everything
    assert "k3y" not in everything
    assert "judge api_key=(masked)" in everything
    assert "HF_TOKEN=(masked)" in (inside / "environment.txt").read_text()
    records = [json.loads(line) for line in (inside / "jobs" / job / "records.jsonl").read_text().splitlines()]
    assert records[-1]["body"]["state"] == "completed"
    assert json.loads((inside / "driver" / "status.json").read_text())["epoch"] == 1
    settings = {each["key"]: each for each in json.loads((inside / "settings.json").read_text())}
    assert settings["name"]["value"] == "local"
    assert settings["name"]["origin"].endswith("node.toml:1")
    assert (inside / "settings" / "node.toml").read_text() == node_file.read_text()
    assert {finding["level"] for finding in json.loads((inside / "doctor.json").read_text())} >= {"ok"}
    assert "driver started" in (inside / "logs" / "driver.log").read_text()
    assert set(document["parts"]) < {str(path.relative_to(inside)) for path in inside.rglob("*")}
    assert replayed(inside / "journal.sqlite").returncode == 0

    away = await ctl(tmp_path, *options, "--out", "away.tar.gz")
    assert away.returncode == 3
    missing = json.loads(away.stdout)["missing"]
    assert set(missing) == {f"driver/{name}.json" for name in DRIVER} | {"jobs"}
    assert "no driver" in missing["jobs"]
    inside = unpacked(tmp_path / "away.tar.gz", tmp_path / "away")
    assert "no driver" in (inside / "contents.txt").read_text()
    again = replayed(inside / "journal.sqlite")
    assert again.returncode == 0
    assert "batches give the same commands" in again.stdout


DRIVER = ("version", "place", "status", "nodes", "jobs", "queue")


def replayed(journal: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "daemons.replay", str(journal)], cwd=ROOT, capture_output=True, text=True, check=False
    )


async def test_a_journal_with_what_looks_like_a_secret_is_left_out(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node) as run, client_of(node) as client:
        await client.submit(job_config())
        run.journal.connection.execute("UPDATE jobs SET toml = 'api_key = \"k-123\"'")
        result = await ctl(tmp_path, "dump", "--out", "d.tar.gz", "--address", node.address)
        assert result.returncode == 3
        assert "options of job-001 look like secrets; --journal includes it all the same" in result.stderr
        inside = unpacked(tmp_path / "d.tar.gz", tmp_path / "d")
        assert "k-123" not in "".join(path.read_text() for path in inside.rglob("*") if path.is_file())
        assert (inside / "jobs" / "job-001" / "job.toml").read_text() == f'api_key = "{MASK}"'
        forced = await ctl(tmp_path, "dump", "--journal", "--out", "e.tar.gz", "--json", "--address", node.address)
        assert "journal.sqlite" in json.loads(forced.stdout)["parts"]


@pytest.mark.usefixtures("driver")
def test_a_journal_on_another_box_is_told_with_its_host(digenctl: Digenctl, tmp_path: Path) -> None:
    result = digenctl("dump", "--json")
    assert result.returncode == 3
    assert json.loads(result.stdout)["missing"]["journal.sqlite"] == (
        "the driver's journal is on elsewhere: /nowhere/state/driver.sqlite"
    )
    assert len(list(tmp_path.glob("digend-dump-*.tar.gz"))) == 1
    assert not list(tmp_path.glob(".digend-dump-*"))


def test_where_it_cannot_be_written(digenctl: Digenctl, tmp_path: Path) -> None:
    assert digenctl("dump", "--out", "no/such/folder/d.tar.gz").returncode == 2
    (tmp_path / "d.tar.gz").mkdir()
    result = digenctl("dump", "--out", "d.tar.gz")
    assert result.returncode == 1
    assert "d.tar.gz cannot be written" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.tar.gz"]


def test_a_part_that_breaks_leaves_no_archive_behind(tmp_path: Path) -> None:
    dump = Dump("d")
    dump.add("gone", lambda: tmp_path / "gone")
    with pytest.raises(OSError, match="gone"):
        dump.write(tmp_path / "d.tar.gz")
    assert not list(tmp_path.iterdir())


def test_what_is_masked_in_one_part_is_masked_in_all(tmp_path: Path) -> None:
    text = 'judge = { api_key = "k3y-of-the-judge", password = "short" }\nprivate_key = "/etc/digend/box.key"\n'
    assert values_in_toml(text) == {"k3y-of-the-judge"}
    assert values_in_environment({"WANDB_API_KEY": "0123456789ab", "HOME": "/home/ada-with-token"}) == {"0123456789ab"}
    dump = Dump("d", secrets={"k3y-of-the-judge"})
    dump.add("logs/reward.log", lambda: "answered 401 to k3y-of-the-judge\n")
    dump.write(tmp_path / "d.tar.gz")
    inside = unpacked(tmp_path / "d.tar.gz", tmp_path / "d")
    assert (inside / "logs" / "reward.log").read_text() == f"answered 401 to {MASK}\n"


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("asked judge api_key=abc123 in 2 s", f"asked judge api_key={MASK} in 2 s"),
        ('{"token": "abc", "tokens": 512, "n": 1}', f'{{"token": "{MASK}", "tokens": 512, "n": 1}}'),
        ("Authorization: Bearer abcdefgh12345", f"Authorization: Bearer {MASK}"),
        ("https://ada:pw@judge.example/x?api_key=s3&b=1", f"https://{MASK}@judge.example/x?api_key={MASK}&b=1"),
        ("login with hf_abcdefghijklmnopqrst failed", f"login with {MASK} failed"),
        ("password: 'two words' refused", f"password: '{MASK}' refused"),
        ("token=null max_tokens=77 no secret here", "token=null max_tokens=77 no secret here"),
    ],
)
def test_masks_in_lines_of_logs(line: str, masked: str) -> None:
    assert masked_text(line) == masked


def test_masks() -> None:
    text = (
        'name = "x"\napi_key = "a"\n[rewards.options]\nauth-token = 5\nurl = "u"\njudge = { password = "p", n = 1 }\n'
    )
    masked = masked_toml(text)
    assert [line for line in masked.splitlines() if MASK in line] == [
        f'api_key = "{MASK}"',
        f'auth-token = "{MASK}"',
        f'judge = {{ password = "{MASK}", n = 1 }}',
    ]
    assert 'url = "u"' in masked
    environment = masked_environment(
        {"DIGEND_NODE": "n", "DIGEND_API_KEY": "k", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "0"}
    )
    assert environment == f"CUDA_VISIBLE_DEVICES=0\nDIGEND_API_KEY={MASK}\nDIGEND_NODE=n\n"
