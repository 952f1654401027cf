"""What clients ask of a running cluster, and the exit codes that scripts rely on. A bad request harms no other job."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import zmq

from digend.exitcodes import ExitCode
from digend.wire.protocol import PROTOCOL
from tests.e2e.cluster import JOB, ROOT, Cluster, environment, wait_until
from tests.e2e.run import Run, assert_counted_once

LONG = ("training.global_steps=500", "eval.enabled=false", "checkpoint.every=0")


def flags(*overrides: str) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


@contextmanager
def long_job(cluster: Cluster, job: str) -> Iterator[str]:
    """A job that runs until it is cancelled, which happens at the end."""
    cluster.submit(job, *LONG)
    try:
        yield job
    finally:
        cluster.driver.cancel(job)


def state(cluster: Cluster, job: str) -> str:
    return cluster.driver.job(job).job.state


def test_an_id_stands_for_one_content(cluster: Cluster, short: Run) -> None:
    same = (str(JOB), "--id", "short", *flags(*cluster.short, "eval.every=2"))
    again = json.loads(cluster.ctl("submit", *same, "--json").stdout)
    assert (again["id"], again["created"]) == ("short", False)
    refused = cluster.ctl("submit", *same, *flags("seed=5"), code=ExitCode.USAGE)
    assert "short exists with other content" in refused.stderr
    assert json.loads(cluster.ctl("show", "job", "short", "--json").stdout) == short.summary


def test_jobs_run_one_after_another_and_can_be_cancelled(cluster: Cluster) -> None:
    with long_job(cluster, "first"):
        cluster.submit("second")
        cluster.submit("third", "eval.enabled=false", "training.global_steps=1")
        wait_until(lambda: cluster.driver.job("first").job.global_step > 0, "the first job trains")
        assert (state(cluster, "second"), state(cluster, "third")) == ("queued", "queued")
        assert "first" in cluster.ctl("status").stdout

        cluster.ctl("wait", "first", "--timeout", "0.1", code=ExitCode.TIMED_OUT)
        assert "second is cancelled" in cluster.ctl("cancel", "second").stdout
        assert state(cluster, "first") == "running"
        cluster.ctl("cancel", "first")
        cluster.ctl("wait", "first", code=ExitCode.TARGET_FAILED)
        cluster.ctl("wait", "third")
    first, third = (cluster.driver.job(job).job for job in ("first", "third"))
    assert first.finished_ns is not None
    assert third.started_ns is not None
    assert third.started_ns >= first.finished_ns
    assert cluster.driver.job("second").job.started_ns is None
    assert cluster.over("second", "cancelled").records
    assert cluster.over("first", "cancelled").steps
    cluster.ctl("show", "job", "fourth", code=ExitCode.NOT_FOUND)


def test_a_job_that_waits_for_somebody_says_for_whom(cluster: Cluster) -> None:
    cluster.submit("nobody", "schedule.generators=['t/generator/7']")
    try:
        cluster.sees("nobody", lambda view: "t/generator/7" in view.reason, "it says what it waits for")
        assert state(cluster, "nobody") == "queued"
        said = cluster.ctl("status", code=ExitCode.DEGRADED).stdout
        assert "none of the generators t/generator/7 is connected" in said
    finally:
        cluster.driver.cancel("nobody")
    cluster.ctl("status")


def test_garbage_on_the_drivers_socket_harms_nobody(cluster: Cluster) -> None:
    cluster.submit("beside-garbage")
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(cluster.address)
        for frames in garbage():
            dealer.send_multipart(frames)
        assert dealer.poll(20_000), "the driver does not say what is wrong"
        reply = msgpack.unpackb(dealer.recv())
        assert reply[:2] == [PROTOCOL, "Refused"]
        dealer.send(b"x" * (4 * 1024 * 1024))  # over the limit of a frame: the connection is cut
        with socket.socket(socket.AF_UNIX) as bare:
            bare.connect(str(cluster.folder / "driver.sock"))
            bare.sendall(os.urandom(4096))
    run = cluster.completed("beside-garbage")
    assert_counted_once(run, 4)
    assert run.counters["failed_tasks"] == run.counters["lost_workers"] == 0


def garbage() -> Iterator[list[bytes]]:
    """Frames that are no message, from harmless to hostile."""
    yield [b""]
    yield [b"\x00" * 64, b"two frames"]
    yield [os.urandom(1000)]
    yield [b"\xdf\xff\xff\xff\xff"]
    yield [msgpack.packb([PROTOCOL, "Assign", {}])]
    yield [msgpack.packb([PROTOCOL, "Cancel", {"request": 1, "job": None}])]
    yield [msgpack.packb([PROTOCOL, "Heartbeat", {"session": "s1.1", "seq": 1}])]
    yield [b"x" * (300 * 1024)]


def test_a_client_of_another_protocol_version_is_told_so(cluster: Cluster) -> None:
    program = (
        "import sys, digend.wire.protocol as p; p.PROTOCOL += 1; from clients.main import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "status", "--node", str(cluster.node_file)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.OTHER_PROTOCOL
    assert f"protocol {PROTOCOL}" in done.stderr
    assert "install the same digend on both" in done.stderr
    cluster.ctl("status")


def test_a_model_folder_without_weights_fails_its_job_only(cluster: Cluster, tmp_path: Path) -> None:
    broken = tmp_path / "no-weights"
    shutil.copytree(ROOT / "configs" / "models" / "shapes-flux", broken)
    (broken / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    done = cluster.ctl(
        "submit", str(JOB), "--id", "no-weights", "--wait", *flags(*cluster.short, f"model.path={broken}"),
        code=ExitCode.TARGET_FAILED,
    )  # fmt: skip
    assert str(broken / "transformer") in done.stdout
    assert "transformer" in cluster.over("no-weights", "failed").summary["job"]["reason"]
    cluster.run("after-no-weights", "eval.enabled=false", "training.global_steps=1")


def test_a_job_file_with_mistakes_is_refused_before_anything_is_sent(cluster: Cluster) -> None:
    jobs = len(cluster.driver.jobs())
    done = cluster.ctl("submit", str(JOB), "--set", "training.global_stepz=3", code=ExitCode.BAD_CONFIG)
    assert "global_steps" in done.stderr
    cluster.ctl("submit", str(JOB), "--set", "data.samples_per_prompt=1", code=ExitCode.BAD_CONFIG)
    cluster.ctl("submit", "/nowhere/job.toml", code=ExitCode.BAD_CONFIG)
    assert len(cluster.driver.jobs()) == jobs
