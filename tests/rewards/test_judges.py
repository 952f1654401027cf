"""Judges in words, and readers: what they are asked, and that an answer without a number is a failure, not a zero."""

import json
from typing import Any

import numpy as np
import pytest

from digend.plugins import PluginOptionError, reward_spec, validate_options
from digend.rewards.frames import PerFrame
from digend.rewards.judge import JudgeOptions
from digend.rewards.ocr import edit_distance, found_share, target_of
from digend.rewards.openai_judge import Options, build
from digend.rewards.spec import Batch, Scores
from tests.rewards.services import Answer, ServiceUnderTest, serving


def judged(answer: Answer, num: int = 1, frames: int = 1, **options: Any) -> tuple[Scores, ServiceUnderTest]:
    shape = (num, 3, 4, 4) if frames == 1 else (num, frames, 3, 4, 4)
    pixels = np.zeros(shape, np.float32)
    batch = Batch(pixels=pixels, prompts=[f"a {at}" for at in range(num)], metadata=[{}] * num)
    with serving(answer) as service:
        given = {"urls": [service.url], "model": "judge-7b", "timeout_s": 5, "deadline_s": 5, "ready_s": 0, **options}
        return build(Options.model_validate(given), "cpu").score(batch), service


def says(text: Any) -> Answer:
    document = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    return lambda body, service: (200, json.dumps(document).encode())


def test_what_the_judge_is_asked() -> None:
    scores, service = judged(says("It is fine.\nFinal Score: 4"), frames=2)
    assert scores.values == [0.8]
    assert service.paths == ["/chat/completions"]
    sent = json.loads(service.bodies[0])
    assert (sent["model"], sent["temperature"]) == ("judge-7b", 0.0)
    (message,) = sent["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "image_url", "text"]
    assert message["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "Description: a 0" in message["content"][2]["text"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("I like it", "got no number: the judge said 'I like it'"),
        ("Final Score: 11", "got 11, not from 0 to 5"),
        ("Final Score: -1", "got -1, not from 0 to 5"),
        (None, "got no text"),
    ],
)
def test_an_answer_without_a_number_fails_its_sample(answer: Any, why: str) -> None:
    scores, _ = judged(says(answer))
    assert scores.values == [None]
    assert why in scores.failures[0]


def test_what_is_no_completion() -> None:
    scores, _ = judged(lambda body, service: (200, b'{"error": "no"}'))
    assert "no answer in" in scores.failures[0]


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("Final Score: **3.5**", 0.7),
        ("Final Score: 1\nNo: Final Score: 5", 1.0),
        ("Final Score: 0", 0.0),
    ],
)
def test_the_last_number_counts(answer: str, reward: float) -> None:
    assert JudgeOptions.model_validate({}).read(answer) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pattern": "score"}, "no group"),
        ({"pattern": "("}, "pattern"),
        ({"question": "how good?"}, "no {prompt}"),
        ({"highest": -1.0}, "must be more than lowest"),
    ],
)
def test_questions_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PluginOptionError, match=words):
        validate_options(
            reward_spec("openai_judge"), {"urls": ["http://localhost"], "model": "m", **options}, "rewards[0].options"
        )


@pytest.mark.parametrize(
    ("read", "wanted", "share"),
    [
        ("HELLO world", "hello", 1.0),
        ("he llo", "Hello", 1.0),
        ("helo", "hello", 0.8),
        ("", "hello", 0.0),
        ("something quite different", "hello", 0.0),
    ],
)
def test_the_share_of_a_text_that_was_read(read: str, wanted: str, share: float) -> None:
    assert found_share(read, wanted) == pytest.approx(share)


def test_edit_distance() -> None:
    assert [edit_distance(*pair) for pair in (("", "ab"), ("kitten", "sitting"), ("abc", "abc"))] == [2, 3, 0]


def test_where_the_wanted_text_comes_from() -> None:
    assert target_of('a sign that says "Open" today', {}) == "Open"
    assert target_of('a sign that says "Open"', {"target": "Closed"}) == "Closed"
    assert target_of("a sign", {}) == target_of('a "sign', {}) == ""


def test_reading_drawn_text() -> None:
    pytest.importorskip("rapidocr_onnxruntime", reason="pip install 'digend[ocr]'")
    from PIL import Image, ImageDraw, ImageFont

    from digend.rewards.ocr import Options as OcrOptions
    from digend.rewards.ocr import build as build_ocr

    image = Image.new("RGB", (256, 96), "white")
    ImageDraw.Draw(image).text((20, 20), "HELLO", fill="black", font=ImageFont.load_default(48))
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None].repeat(3, 0) / np.float32(255)
    batch = Batch(pixels=pixels, prompts=['says "hello"', 'says "xyz"', "says"], metadata=[{}] * 3)
    scores = build_ocr(OcrOptions(), "cpu").score(batch)
    assert scores.values == [1.0, 0.0, None]


def test_a_frame_that_fails_fails_its_video() -> None:
    class Fails:
        def score(self, batch: Batch) -> Scores:
            values: list[float | None] = [1.0] * len(batch.prompts)
            values[1], values[5] = None, float("nan")
            return Scores(values=values, failures={1: "too dark"}, components={"part": [0.5] * len(values)})

    pixels = np.zeros((3, 2, 3, 4, 4), np.float32)
    scores = PerFrame(Fails(), "mean").score(Batch(pixels=pixels, prompts=["a"] * 3, metadata=[{}] * 3))
    assert scores.values == [None, 1.0, None]
    assert scores.failures == {0: "of frame 1: too dark", 2: "of frame 1: gave nan"}
    assert scores.components == {"part": [0.5] * 3}
