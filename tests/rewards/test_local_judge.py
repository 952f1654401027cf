"""A judge from a folder: its answers are those of the stock classes, its question and numbers those of every judge."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForImageTextToText, AutoProcessor

from digend.plugins import load_object, reward_spec, validate_options
from digend.rewards.judge import JudgeOptions
from digend.rewards.local import picture
from digend.rewards.spec import Batch, Scores
from tests.rewards.tiny_models import save_idefics

PROMPTS = ["a red circle", "it", "a blue square and a picture of it", "well"]
NUMBER: dict[str, Any] = {"pattern": r"(\d)\d*$", "highest": 9, "max_new_tokens": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_idefics(tmp_path_factory.mktemp("idefics"))


def pixels(num: int = 4, *frames: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).random((num, *frames, 3, 24, 40), dtype=np.float32)


def judged(folder: Path, shown: NDArray[np.float32], told: list[int] | None = None, **options: Any) -> Scores:
    spec = reward_spec("local_judge")
    build: Any = load_object(spec.builder)
    reward = build(validate_options(spec, {"path": str(folder), **options}, "rewards[0].options"), "cpu")
    prompts = PROMPTS[: len(shown)]
    heard = told if told is not None else []
    scores: Scores = reward.score(
        Batch(pixels=shown, prompts=prompts, metadata=[{}] * len(prompts), scored=heard.append)
    )
    return scores


def stock_answers(folder: Path, shown: NDArray[np.float32]) -> list[str]:
    """One sample at a time, through transformers' own classes and nothing of ours but the question."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    answers = []
    for prompt, each in zip(PROMPTS, shown, strict=False):
        frames = [picture(frame) for frame in (each if each.ndim == 4 else each[None])]
        parts = [
            *({"type": "image"} for _ in frames),
            {"type": "text", "text": JudgeOptions.model_validate({}).ask(prompt)},
        ]
        text = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
        inputs = processor(images=frames, text=text, return_tensors="pt")
        made = model.generate(**inputs, max_new_tokens=5, do_sample=False)
        answers.append(processor.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
    return answers


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_its_answers_are_the_stock_models_in_any_company(folder: Path, batch_size: int) -> None:
    told: list[int] = []
    scores = judged(folder, pixels(), told, batch_size=batch_size, **NUMBER)
    answers = stock_answers(folder, pixels())
    assert scores.values == [int(answer[0]) / 9 for answer in answers]
    assert len(set(answers)) > 1, "the picture and the prompt matter"
    assert told == sorted({*range(batch_size, 4, batch_size), 4})


def test_all_frames_of_a_video_are_shown(folder: Path) -> None:
    scores = judged(folder, pixels(2, 3), **NUMBER)
    assert scores.values == [int(answer[0]) / 9 for answer in stock_answers(folder, pixels(2, 3))]


def test_an_answer_without_a_number_is_a_failure_that_says_whether_it_was_cut(folder: Path) -> None:
    scores = judged(folder, pixels(2), max_new_tokens=5)
    assert scores.values == [None, None]
    answers = stock_answers(folder, pixels(2))
    for at, answer in enumerate(answers):
        assert scores.failures[at] == f"got no number: the judge said {answer!r} (cut at max_new_tokens = 5)"


def test_a_number_outside_the_range_is_one_too(folder: Path) -> None:
    scores = judged(folder, pixels(2), pattern=r"(\d+)", max_new_tokens=5, highest=5)
    assert scores.values == [None, None]
    assert all("not from 0 to 5" in why for why in scores.failures.values())


def test_other_precisions_answer(folder: Path) -> None:
    assert all(value is not None for value in judged(folder, pixels(2), dtype="bfloat16", **NUMBER).values)


def without(folder: Path, target: Path, *names: str) -> Path:
    shutil.copytree(folder, target, ignore=lambda _, found: [name for name in found if name in names])
    return target


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    for target, names, words in (
        ("a", ["chat_template.jinja"], "has no chat template"),
        ("b", ["model.safetensors"], "holds no vision-language model"),
        ("c", ["preprocessor_config.json", "processor_config.json"], "processor|no chat template"),
    ):
        with pytest.raises(ValueError, match=words):
            judged(without(folder, tmp_path / target, *names), pixels(1))
    with pytest.raises(ValueError, match="is not a folder on this box"):
        judged(tmp_path / "nowhere", pixels(1))
    other = without(folder, tmp_path / "d")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    with pytest.raises(ValueError, match="holds no"):
        judged(other, pixels(1))


def test_its_options_are_those_of_folders_and_of_judges() -> None:
    known = set(reward_spec("local_judge").options.model_fields)
    assert {"path", "dtype", "batch_size", "question", "pattern", "lowest", "highest", "max_new_tokens"} == known
