"""The driver as a process: exit codes, kill -9, signals, replay of what it recorded."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from daemons import replay
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.wire.replies import Changed, JobList
from digend.wire.requests import Cancel, ListJobs
from digend.wire.workers import Assign, Welcome
from tests.driver.fakes import FakeRecorder, FakeWorker, living
from tests.driver.world import Client, client_of, job_config, journal_path, node_of

ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import sys; from daemons.driver.main import run; from digend.config.node import NodeConfig; "
    "sys.exit(run(NodeConfig.model_validate_json(sys.argv[1])))"
)


def start(node: NodeConfig) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, node.model_dump_json()]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@contextmanager
def started(node: NodeConfig) -> Iterator[subprocess.Popen[str]]:
    """A driver process, killed at the end if it still runs."""
    process = start(node)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def open_jobs(client: Client) -> dict[str, str]:
    reply = await client.ask(ListJobs(request=client.next_request()), JobList)
    return {each.id: each.state for each in reply.jobs}


async def test_acknowledged_submits_and_cancels_survive_kill_9(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    with started(node) as first:
        async with client_of(node) as client:
            for job in ("a", "b", "c"):
                await client.submit(job_config(), job=job)
            await client.ask(Cancel(request=client.next_request(), job="b"), Changed)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with started(node):
        async with client_of(node) as client:
            jobs = await open_jobs(client)
            assert list(jobs) == ["a", "b", "c"]
            assert jobs["b"] == "cancelled"
            assert not {jobs["a"], jobs["c"]} & {"cancelled", "failed"}
            assert not (await client.submit(job_config(), job="a")).created


@pytest.mark.parametrize("kill_after", [6, 20])
async def test_a_job_goes_on_after_kill_9_of_the_driver(tmp_path: Path, kill_after: int) -> None:
    """Workers live on, greet the new driver and hand in what they hold; the record stream has no hole."""
    node = node_of(tmp_path)
    async with AsyncExitStack() as stack:
        first = stack.enter_context(started(node))
        generator = await stack.enter_async_context(living(FakeWorker(node, "generator", "n/generator/0")))
        trainer = await stack.enter_async_context(living(FakeWorker(node, "trainer", "n/trainer")))
        recorder = await stack.enter_async_context(living(FakeRecorder(node)))
        client = await stack.enter_async_context(client_of(node))
        await client.submit(job_config(), job="a")
        await generator.until(Assign, kill_after)
        first.send_signal(signal.SIGKILL)
        first.wait()
        stack.enter_context(started(node))
        detail = (await client.completed("a")).job
        assert (detail.job.global_step, detail.job.policy_version) == (3, 3)
        assert [welcome.epoch for welcome in await trainer.until(Welcome, 2)][-1] == 2
        await recorder.when(lambda: len(recorder.records["a"]) >= detail.num_records)
        assert [record.seq for record in recorder.records["a"]] == list(range(detail.num_records))
    assert replay.main([str(journal_path(node))]) == ExitCode.OK


async def test_signals_end_the_driver_with_asked_to_stop(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        with started(node) as process:
            async with client_of(node) as client:
                await open_jobs(client)
            process.send_signal(number)
            assert process.wait(60) == ExitCode.ASKED_TO_STOP


async def test_a_second_driver_on_the_address_or_the_journal_is_told_so(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    with started(node):
        async with client_of(node) as client:
            await open_jobs(client)
            for other, named in (
                (node, "d.sock is served by process"),
                (node.model_copy(update={"address": f"ipc://{tmp_path}/e.sock"}), "another driver uses this journal"),
            ):
                second = start(other)
                _, said = second.communicate(timeout=30)
                assert second.returncode == ExitCode.BAD_CONFIG
                assert named in said
            await open_jobs(client)


def fails_to_start(node: NodeConfig, code: ExitCode) -> str:
    process = start(node)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        said = fails_to_start(node_of(tmp_path).model_copy(update={"address": address}), ExitCode.BAD_CONFIG)
    assert address in said


def test_an_ipc_path_that_is_too_long(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/{'x' * 120}.sock"
    said = fails_to_start(node_of(tmp_path).model_copy(update={"address": address}), ExitCode.BAD_CONFIG)
    assert "107" in said


@pytest.mark.parametrize("key", ["state", "runs"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").write_text("")
    said = fails_to_start(node_of(tmp_path).model_copy(update={key: f"{tmp_path}/file/{key}"}), ExitCode.BAD_CONFIG)
    assert f"{tmp_path}/file/{key}" in said


def test_a_damaged_journal_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    path = journal_path(node)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x00garbage" * 1000)
    assert str(path) in fails_to_start(node, ExitCode.BAD_CONFIG)
    assert path.read_bytes() == b"\x00garbage" * 1000


async def test_replay_names_the_batch_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = node_of(tmp_path)
    path = journal_path(node)
    with started(node) as process:
        async with client_of(node) as client:
            await client.submit(job_config(), job="a")
            await client.ask(Cancel(request=client.next_request(), job="a"), Changed)
        process.terminate()
        process.wait(60)
    assert replay.main([str(path)]) == ExitCode.OK
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE batches SET commands = (SELECT commands FROM batches WHERE id = 1) WHERE id = 2")
    connection.close()
    capsys.readouterr()
    assert replay.main([str(path)]) == ExitCode.TARGET_FAILED
    assert "segment 1, batch 2 (JobSubmitted)" in capsys.readouterr().out
    assert replay.main([str(tmp_path / "absent")]) == ExitCode.BAD_CONFIG
    assert replay.main([]) == ExitCode.USAGE


def test_the_driver_has_no_use_for_torch() -> None:
    program = (
        "import sys; import daemons.driver.main; from daemons.driver.jobs import to_spec; "
        "from tests.driver.world import job_config, PROMPTS; from digend.job_check import validate_job; "
        "validate_job(job_config(), PROMPTS); to_spec(job_config(), PROMPTS, None, 'x'); "
        "print([name for name in ('torch', 'diffusers', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
