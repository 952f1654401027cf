"""A reward that fails is a status, never a number."""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from digend.engines.diversity import diversity
from digend.engines.engine import LocalEngine
from digend.engines.protocols import TaskFault
from digend.engines.scoring import MAX_REASON_CHARS
from digend.wire.tasks import PrepareResult, Prompt, ScoreItem, ScoreResult, ScoreTask
from digend.wire.tensors import from_numpy
from tests.engines.world import JOB, MemoryContext, job_config, prepare_task

REWARDS = """
def brightness(pixels, prompts, metadata):
    return pixels.reshape(len(prompts), -1).mean(1)

def raises(pixels, prompts, metadata):
    raise RuntimeError("no network")

def screams(pixels, prompts, metadata):
    raise RuntimeError("\\x1b[2J\\x07" + "a" * 10_000)

def one_short(pixels, prompts, metadata):
    return [0.0] * (len(prompts) - 1)

def nan_on_red(pixels, prompts, metadata):
    return [float("nan") if "red" in prompt else 1.0 for prompt in prompts]

def infinite(pixels, prompts, metadata):
    return [float("inf")] * len(prompts)

def huge(pixels, prompts, metadata):
    return [1e200] * len(prompts)

def none_on_blue(pixels, prompts, metadata):
    return [None if "blue" in prompt else 2.0 for prompt in prompts]

def a_number(pixels, prompts, metadata):
    return 1.0

def words(pixels, prompts, metadata):
    return ["good" for _ in prompts]

def by_metadata(pixels, prompts, metadata):
    return [float(each["target"]) for each in metadata]
"""
PROMPTS = ("a red circle", "a blue square")


class Scoring:
    """A reward process with rewards from a file, and four samples: values 0, 51, 102, 153 of 255."""

    def __init__(self, root: Path, rewards: list[str], metrics: tuple[str, ...] = (), batch: int = 4) -> None:
        (root / "rewards").mkdir(exist_ok=True)
        (root / "rewards" / "mine.py").write_text(REWARDS)
        config = job_config(root, sampling={"rollout_batch": batch}).model_dump()
        config["rewards"] = [{"name": f"mine.py:{name}", "weight": 2.0} for name in rewards]
        config["eval"]["metrics"] = [{"name": f"mine.py:{name}"} for name in metrics]
        self.context = MemoryContext()
        self.engine = LocalEngine("reward", "cpu", root / "runs", root / "state", [root / "rewards"])
        made = type(job_config(root)).model_validate(config)
        prepared = self.engine.run(prepare_task(made), self.context)
        assert isinstance(prepared, PrepareResult)
        assert (prepared.num_parameters, prepared.sigmas, prepared.weights) == (0, (), None)

    def score(self, purpose: str = "train") -> ScoreResult:
        pixels = {f"p{at // 2}/{at % 2}/pixels": from_numpy(np.full((3, 4, 4), 51 * at, np.uint8)) for at in range(4)}
        blob = self.context.serve(pixels)
        items = tuple(
            ScoreItem(
                prompt=Prompt(uid=f"p{at // 2}", text=PROMPTS[at // 2], metadata={"target": str(at)}),
                index=at % 2,
                blob=blob,
            )
            for at in range(4)
        )
        result = self.engine.run(
            ScoreTask(
                job=JOB,
                incarnation=0,
                purpose="evaluate" if purpose == "evaluate" else "train",
                global_step=0,
                rollout=0,
                micro_batch=0,
                fragment=0,
                items=items,
            ),
            self.context,
        )
        assert isinstance(result, ScoreResult)
        assert [(each.prompt, each.index) for each in result.scores] == [("p0", 0), ("p0", 1), ("p1", 0), ("p1", 1)]
        return result


def outcome(result: ScoreResult) -> list[float | None]:
    return [each.reward for each in result.scores]


def test_a_weighted_sum_with_its_parts(tmp_path: Path) -> None:
    result = Scoring(tmp_path, ["brightness", "by_metadata"]).score()
    assert outcome(result) == pytest.approx([2 * (0.2 * at + at) for at in range(4)], abs=1e-6)
    assert result.scores[3].components == pytest.approx({"mine:brightness": 0.6, "mine:by_metadata": 3.0})
    assert result.group_metrics == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "RuntimeError: no network"),
        ("screams", "RuntimeError: \\x1b[2J\\x07aaa"),
        ("one_short", "gave 3 values for 4 samples"),
        ("infinite", "gave inf"),
        ("huge", "gave 1e+200"),
        ("a_number", "not a list of floats"),
        ("words", "could not convert"),
    ],
)
def test_a_broken_reward_fails_the_batch(tmp_path: Path, name: str, words: str) -> None:
    result = Scoring(tmp_path, ["brightness", name]).score()
    assert outcome(result) == [None] * 4
    assert all(words in (each.failure or "") and f"mine:{name}" in (each.failure or "") for each in result.scores)
    assert all(len(each.failure or "") <= MAX_REASON_CHARS for each in result.scores)
    assert result.scores[1].components == pytest.approx({"mine:brightness": 0.2})


def test_only_the_failing_batch_fails(tmp_path: Path) -> None:
    result = Scoring(tmp_path, ["nan_on_red"], batch=2).score()
    assert outcome(result) == [None, None, 2.0, 2.0]
    assert (result.scores[0].failure, result.scores[2].failure) == ("reward mine:nan_on_red gave nan", None)


def test_only_the_samples_without_a_value_fail(tmp_path: Path) -> None:
    result = Scoring(tmp_path, ["none_on_blue"]).score()
    assert outcome(result) == [4.0, 4.0, None, None]
    assert result.scores[3].failure == "reward mine:none_on_blue gave no value"


def test_metrics_are_for_evaluation_and_cost_only_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scoring = Scoring(tmp_path, ["by_metadata"], ("brightness", "raises"))
    assert scoring.score().scores[1].components == {"mine:by_metadata": 1.0}
    with caplog.at_level(logging.WARNING):
        result = scoring.score("evaluate")
    assert outcome(result) == [0.0, 2.0, 4.0, 6.0]
    assert result.scores[1].components == pytest.approx({"mine:by_metadata": 1.0, "mine:brightness": 0.2})
    assert "mine:raises" in caplog.text


def test_diversity_of_each_group(tmp_path: Path) -> None:
    result = Scoring(tmp_path, ["brightness"]).score("evaluate")
    expected = np.sqrt(48 * (2 * 51 / 255) ** 2)
    metrics: Mapping[str, Mapping[str, float]] = result.group_metrics
    assert {uid: each["diversity"] for uid, each in metrics.items()} == pytest.approx({"p0": expected, "p1": expected})


def test_diversity_is_the_mean_over_pairs() -> None:
    black, white = np.zeros((3, 2, 2), np.uint8), np.full((3, 2, 2), 255, np.uint8)
    assert diversity([black, black]) == 0
    assert diversity([black, white]) == pytest.approx(np.sqrt(12 * 4))
    assert diversity([black, white, white]) == pytest.approx(np.sqrt(12 * 4) * 2 / 3)


def test_the_same_reward_twice_has_two_names(tmp_path: Path) -> None:
    result = Scoring(tmp_path, ["brightness", "brightness"]).score()
    assert sorted(result.scores[0].components) == ["mine:brightness", "mine:brightness#2"]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ({"name": "jpeg_compressibilty"}, "did you mean jpeg_compressibility"),
        ({"name": "jpeg_compressibility", "options": {"quality": 3}}, "rewards\\[0\\].options.quality"),
        ({"name": "elsewhere.py:f"}, "allows no reward files"),
    ],
)
def test_a_reward_that_cannot_be_built_fails_prepare(tmp_path: Path, reward: object, words: str) -> None:
    config = job_config(tmp_path).model_dump()
    config["rewards"] = [reward]
    engine = LocalEngine("reward", "cpu", tmp_path, tmp_path)
    with pytest.raises(TaskFault, match=words) as fault:
        engine.run(prepare_task(type(job_config(tmp_path)).model_validate(config)), MemoryContext())
    assert fault.value.error.reason == "config"


def test_lost_pixels_are_blob_lost(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, ["brightness"])
    scoring.context.lost.add("blob-0")
    with pytest.raises(TaskFault) as fault:
        scoring.score()
    assert fault.value.error.reason == "blob_lost"
