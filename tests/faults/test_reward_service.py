"""A reward service that is killed, hangs, gives NaN or lies: samples masked, groups dropped and named, the job ends."""

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import IO

import pytest

from digend.exitcodes import ExitCode
from tests.e2e.cluster import ROOT, Cluster
from tests.e2e.run import Run, assert_counted_once
from tests.rewards.services import Answer, ServiceUnderTest, hangs, serving

BRIEF = (
    "eval.enabled=false",
    "training.global_steps=3",
    "schedule.reward_retries=0",
    "schedule.scoring=dedicated",
    "checkpoint.every=0",
    'rewards[0].name="http_service"',
)
GROUP = 4


def options(url: str, deadline_s: float = 1.0) -> tuple[str, ...]:
    return (
        *BRIEF,
        f'rewards[0].options={{urls=["{url}"], concurrency=8, timeout_s=1.0, deadline_s={deadline_s}, backoff_s=0.1}}',
    )


def unless_circle(otherwise: Answer) -> Answer:
    """Rewards that differ within a group, and something else for prompts with a circle."""
    count = iter(range(1, 1_000_000))

    def answer(body: bytes, service: ServiceUnderTest) -> "tuple[int, bytes] | None":
        if "circle" in json.loads(body)["samples"][0]["prompt"]:
            return otherwise(body, service)
        return 200, json.dumps({"values": [1.0 + next(count)]}).encode()

    return answer


def gives(text: bytes) -> Answer:
    return lambda body, service: (200, text)


@pytest.mark.parametrize(
    ("name", "otherwise", "said"),
    [
        pytest.param("breaks", lambda body, service: None, "no reply in 1 s", marks=pytest.mark.matrix),
        ("hangs", hangs, "timed out"),
        ("nan", gives(b'{"values": [NaN]}'), "gave nan"),
        pytest.param(
            "wrong-length",
            gives(b'{"values": [1.0, 2.0, 3.0]}'),
            "the reply has 3 values for 1 samples",
            marks=pytest.mark.matrix,
        ),
        ("wrong-shape", gives(b'{"values": [[1.0, 2.0]]}'), "values[0] of the reply is '[1.0, 2.0]', not a number"),
        pytest.param(
            "wrong-type",
            gives(b'{"values": ["1.0"]}'),
            "values[0] of the reply is '1.0', not a number",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_a_service_that_fails_for_one_prompt(healthy: Cluster, name: str, otherwise: Answer, said: str) -> None:
    with serving(unless_circle(otherwise)) as service:
        run = healthy.run(f"service-{name}", *options(service.url))
    assert_counted_once(run, 3)
    assert_masked_in_whole_groups(run)
    assert said in run.notices()
    assert run.counters["dropped_groups"] >= 1, "no circle was drawn"
    assert_never_a_zero(run)


def assert_masked_in_whole_groups(run: Run) -> None:
    for step in run.steps:
        assert step.num_masked == GROUP * step.num_dropped_groups
        assert step.num_selected == step.num_samples - step.num_masked
    assert "quorum" in run.notices()


def assert_never_a_zero(run: Run) -> None:
    """The service gives 2 or more, so a mean below that would hold a made-up value."""
    assert all((step.reward_mean or 0) >= 2 for step in run.steps if step.num_selected)
    told = [step.components for step in run.steps if step.num_selected]
    assert told
    for components in told:
        assert 0 < components["http_service.latency_p50_s"] <= components["http_service.latency_p95_s"] < 10


def start(stack: ExitStack, port: str) -> "tuple[subprocess.Popen[str], str]":
    """The example server, as a process that can be killed."""
    command = [sys.executable, str(ROOT / "examples" / "reward_service.py"), "--port", port]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    told: IO[str] | None = process.stdout
    assert told is not None
    return process, told.readline().strip()


@pytest.mark.matrix
def test_a_service_that_is_killed_and_comes_back(healthy: Cluster) -> None:
    job = "service-killed"

    def num_masked() -> int:
        return healthy.driver.job(job).counters.get("masked_samples", 0)

    with ExitStack() as stack:
        process, url = start(stack, "0")
        healthy.submit(job, *options(url, 2.0), "training.global_steps=8", "training.max_skipped_steps=50")
        healthy.reached(job, 1)
        process.kill()
        healthy.sees(job, lambda view: num_masked() > 0, "samples are masked")
        start(stack, url.rpartition(":")[2])
        run = healthy.completed(job)
    assert_counted_once(run, 8)
    assert_masked_in_whole_groups(run)
    assert "cannot be reached" in run.notices()
    assert run.steps[0].num_masked == run.steps[-1].num_masked == 0
    assert all((step.reward_mean or 0) > 0 for step in run.steps if step.num_selected)


@pytest.mark.matrix
def test_one_that_is_not_up_yet_is_named_while_it_is_waited_for(healthy: Cluster) -> None:
    address = "http://127.0.0.1:9"
    late = f'rewards[0].options={{urls=["{address}"], ready_s=60.0}}'
    healthy.submit("service-late", *BRIEF, late)
    healthy.sees("service-late", lambda view: f"waits for {address} (cannot be" in view.reason, "it says who waits")
    assert f"waits for {address} (cannot be reached" in healthy.ctl("status", code=ExitCode.DEGRADED).stdout
    healthy.ctl("cancel", "service-late")
