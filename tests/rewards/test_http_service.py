"""A service is believed only as far as its reply keeps to the schema; whatever it does, a failure is never a number."""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from digend.config.job import JobConfig
from digend.engines.protocols import Cancelled
from digend.plugins import PluginOptionError, reward_spec, validate_options
from digend.rewards.http_service import Options, build, encode_request, read_reply
from digend.rewards.service import ServiceError
from digend.rewards.service_options import service_warnings
from digend.rewards.spec import Batch, Scores
from digend.telemetry.waiting import waits_for
from tests.rewards.services import ServiceUnderTest, hangs, serving, values

ROOT = Path(__file__).parents[2]
PATIENT = {"timeout_s": 20, "deadline_s": 20, "backoff_s": 0.02, "max_backoff_s": 0.05, "ready_s": 20}
QUICK = {"timeout_s": 0.3, "deadline_s": 0.6}
"""Of tests that wait for nothing but failure."""


def batch(num: int = 2, told: list[int] | None = None) -> Batch:
    pixels = np.stack([np.full((3, 4, 4), at / 8, np.float32) for at in range(num)])
    return Batch(
        pixels=pixels,
        prompts=[f"prompt {at}" for at in range(num)],
        metadata=[{"target": str(at)} for at in range(num)],
        scored=(lambda done: None) if told is None else told.append,
    )


def score(urls: str | list[str], of: Batch | None = None, **options: Any) -> Scores:
    listed = [urls] if isinstance(urls, str) else urls
    reward = build(Options.model_validate({"urls": listed, **PATIENT, **options}), "cpu")
    return reward.score(of or batch())


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_the_example_server_in_both_forms(form: str) -> None:
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "reward_service.py"), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        scores = score(url, batch(5), format=form, batch_size=2)
        assert scores.values == pytest.approx([round(255 * at / 8) / 255 for at in range(5)], abs=1e-6)
        assert all(0 < each < 20 for each in scores.components["latency_s"])
        video = Batch(pixels=np.full((1, 3, 3, 4, 4), 0.2, np.float32), prompts=["v"], metadata=[{}])
        assert score(url, video, format=form).values == pytest.approx([0.2], abs=1e-6)
    finally:
        server.terminate()
        server.wait(60)
        assert server.stdout is not None
        server.stdout.close()


def test_what_is_sent() -> None:
    sent = json.loads(encode_request(batch(), slice(1, 2), "json"))
    assert sent["version"] == 1
    (sample,) = sent["samples"]
    assert (sample["prompt"], sample["metadata"], len(sample["frames"])) == ("prompt 1", {"target": "1"}, 1)
    raw = msgpack.unpackb(encode_request(batch(), slice(1, 2), "msgpack"))["samples"][0]
    assert raw["shape"] == [1, 4, 4, 3]
    assert raw["pixels"] == bytes([32]) * 48


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([1.0], "has 1 values for 2 samples"),
        ([1.0, 2.0, 3.0], "has 3 values for 2 samples"),
        ([1.0, "high"], "values\\[1\\] of the reply is 'high', not a number"),
        ([1.0, True], "values\\[1\\] of the reply is 'True'"),
        ([1.0, [2.0]], "not a number"),
        ([1.0, 10**400], "too large"),
    ],
)
def test_a_lying_reply_fails_its_samples(given: list[Any], why: str) -> None:
    with serving(values(*given)) as service:
        scores = score(service.url, batch_size=2)
    assert scores.values == [None, None]
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(scores.failures[1])


@pytest.mark.parametrize(
    "reply",
    [b"", b"[1, 2]", b"not json", b'{"values": 1}', b'{"value": [1, 2]}', b'{"values": [1, 2], "components": [1]}'],
)
def test_what_is_no_reply(reply: bytes) -> None:
    with pytest.raises(ServiceError, match="reply"):
        read_reply(reply, "json", 2)
    with pytest.raises(ServiceError, match="reply"):
        read_reply(b"\xc1", "msgpack", 2)


def test_parts_and_reasons_of_single_samples() -> None:
    answer = {"values": [1, None], "components": {"ocr": [0.5, 0.25]}, "failures": {"1": "no text", "9": "nobody"}}
    with serving(lambda body, service: (200, json.dumps(answer).encode())) as service:
        scores = score(service.url, batch_size=2)
    assert (scores.values, scores.failures) == ([1.0, None], {1: "no text"})
    assert scores.components["ocr"] == [0.5, 0.25]


def test_nan_comes_through_as_nan_for_the_engine_to_refuse() -> None:
    with serving(lambda body, service: (200, b'{"values": [NaN]}')) as service:
        assert [str(each) for each in score(service.url).values] == ["nan", "nan"]


def test_concurrency_order_and_progress() -> None:
    def slow(body: bytes, service: ServiceUnderTest) -> tuple[int, bytes]:
        time.sleep(0.1)
        target = json.loads(body)["samples"][0]["metadata"]["target"]
        return 200, json.dumps({"values": [float(target)]}).encode()

    told: list[int] = []
    with serving(slow) as one, serving(slow) as other:
        scores = score([one.url, other.url], batch(12, told), concurrency=3)
        assert scores.values == [float(at) for at in range(12)]
        assert (one.most_at_a_time, other.most_at_a_time) == (3, 3)
        assert abs(len(one.bodies) - len(other.bodies)) <= 4
    assert told == sorted(told)
    assert told[-1] == 12
    assert len(set(told)) > 3


def test_a_hanging_server_costs_its_samples_and_no_more() -> None:
    begun = time.monotonic()
    with serving(hangs) as service:
        scores = score(service.url, None, **QUICK)
    assert scores.values == [None, None]
    assert "no reply in 0.6 s" in scores.failures[0]
    assert "timed out" in scores.failures[0]
    assert time.monotonic() - begun < 4


def test_a_server_that_dribbles_is_given_up() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    try:
        begun = time.monotonic()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        scores = score(url, None, **QUICK, ready_s=0)
        assert scores.values == [None, None]
        assert time.monotonic() - begun < 4
    finally:
        listening.close()


def test_another_address_takes_over() -> None:
    with serving(hangs) as bad, serving(values(0.5)) as good:
        scores = score([bad.url, good.url], batch(6), timeout_s=1)
    assert scores.values == [0.5] * 6


def test_a_busy_server_is_asked_again_and_a_refusal_is_final() -> None:
    count = iter(range(100))

    def busy(body: bytes, service: ServiceUnderTest) -> tuple[int, bytes]:
        return (503, b"loading") if next(count) < 2 else (200, b'{"values": [0.5]}')

    with serving(busy) as service:
        assert score(service.url, batch(1)).values == [0.5]
        assert len(service.bodies) == 3
    with serving(lambda body, service: (400, b"no such prompt")) as service:
        scores = score(service.url, batch(1))
        assert "status 400: no such prompt" in scores.failures[0]
        assert len(service.bodies) == 1


def test_a_broken_connection_is_tried_again() -> None:
    count = iter(range(100))
    with serving(lambda body, service: None if next(count) < 1 else (200, b'{"values": [2]}')) as service:
        assert score(service.url, batch(1)).values == [2.0]


def test_a_reply_without_end_is_cut() -> None:
    with serving(lambda body, service: (200, b" " * (5 << 20))) as service:
        assert "longer than 4 MiB" in score(service.url, batch(1)).failures[0]


def test_meanwhile_it_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said, sleep = [], time.sleep

    def pause(seconds: float) -> None:
        said.append(waits_for())
        sleep(0.05)

    monkeypatch.setattr("digend.rewards.service.time.sleep", pause)
    with pytest.raises(ServiceError, match="not ready after 2 s"):
        score("http://127.0.0.1:9", ready_s=2)
    for line in said:
        assert re.fullmatch(r"waits for http://127.0.0.1:9 \(cannot be reached: .*refused\), [012] of 2 s", line)
    assert said
    assert waits_for() == ""


def test_nobody_there_at_the_start() -> None:
    with pytest.raises(ServiceError, match=r"not ready after 0.3 s: http://127.0.0.1:9: cannot be reached.*refused"):
        score("http://127.0.0.1:9", ready_s=0.3)
    with serving(values(1.0), ready=503) as service, pytest.raises(ServiceError, match="status 503"):
        score(service.url, ready_s=0.3)


def test_one_of_two_is_enough_at_the_start() -> None:
    with serving(values(1.0)) as service:
        assert score(["http://127.0.0.1:9", service.url]).values == [1.0, 1.0]


def test_a_revoked_lease_ends_the_wait() -> None:
    def revoked(done: int) -> None:
        raise Cancelled("revoked")

    waits = Batch(pixels=batch().pixels, prompts=["a", "b"], metadata=[{}, {}], scored=revoked)
    with serving(hangs) as service, pytest.raises(Cancelled):
        score(service.url, waits)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(values(1.0)) as service:
        with pytest.raises(ServiceError, match="DIGEND_TEST_KEY"):
            score(service.url, key_variable="DIGEND_TEST_KEY")
        monkeypatch.setenv("DIGEND_TEST_KEY", "secret")
        score(service.url, batch(1), key_variable="DIGEND_TEST_KEY")
        assert service.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"urls": []}, "at least 1"),
        ({"urls": ["127.0.0.1:80"]}, "is no address"),
        ({"urls": ["ftp://a"]}, "is no address"),
        ({"urls": ["http://a"], "timeout_s": 50.0}, "less than timeout_s"),
        ({"urls": ["http://a"], "concurency": 3}, "did you mean concurrency"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PluginOptionError, match=words):
        validate_options(reward_spec("http_service"), options, "rewards[0].options")


@pytest.fixture
def config() -> JobConfig:
    return JobConfig.model_validate(
        {
            "name": "j",
            "model": {"family": "flux", "path": "m"},
            "sampling": {"height": 16, "width": 16},
            "data": {"prompts": "p.txt", "prompts_per_rollout": 2, "samples_per_prompt": 2},
            "training": {"global_steps": 1},
            "rewards": [{"name": "http_service"}],
            "schedule": {"scoring": "dedicated"},
        }
    )


def test_what_is_warned_about(config: JobConfig) -> None:
    def warned(url: str, **options: Any) -> list[str]:
        return [key for key, _ in service_warnings(Options.model_validate({"urls": [url], **options}), config)]

    assert warned("http://127.0.0.1:1") == warned("http://[::1]:1") == warned("https://judge.example") == []
    assert warned("http://judge.example") == warned("http://10.0.0.7:80") == ["urls"]
    assert warned("http://localhost:1", deadline_s=60.0) == ["deadline_s"]
    generators = config.model_copy(update={"schedule": config.schedule.model_copy(update={"scoring": "colocated"})})
    assert [key for key, _ in service_warnings(Options.model_validate({"urls": ["http://localhost"]}), generators)] == [
        ""
    ]
