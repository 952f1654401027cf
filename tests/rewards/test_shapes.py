"""The demo's rewards: both classifiers, the template part, and the specs."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from digend.rewards import shapes
from digend.rewards.shapes_classifier import (
    INDEPENDENT_CLASSIFIER,
    REWARD_CLASSIFIER,
    classify,
    load_classifier,
)
from digend.rewards.shapes_data import CAPTIONS, draw_dataset, draw_templates, parse_caption
from digend.rewards.shapes_templates import NUM_TEMPLATES, SEED, TemplateBank
from digend.rewards.spec import Batch, NoOptions, RewardSpec, Scores

UNSEEN_SEED = 20_261


def to_pixels(drawings: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (drawings.transpose(0, 3, 1, 2) / 255).astype(np.float32)


def score(spec: RewardSpec, pixels: NDArray[np.float32], prompts: list[str]) -> Scores:
    module, _, function = spec.builder.partition(":")
    assert module == shapes.__name__
    reward = getattr(shapes, function)(NoOptions(), "cpu")
    scores: Scores = reward.score(Batch(pixels=pixels, prompts=prompts, metadata=[{}] * len(prompts)))
    return scores


def draw_unseen(num: int) -> tuple[NDArray[np.float32], list[str]]:
    drawings, labels = draw_dataset(num, UNSEEN_SEED)
    return to_pixels(drawings), [CAPTIONS[label] for label in labels]


@pytest.mark.parametrize("name", [REWARD_CLASSIFIER, INDEPENDENT_CLASSIFIER])
def test_classifiers_read_fresh_drawings(name: str) -> None:
    pixels, prompts = draw_unseen(1000)
    captions = [parse_caption(prompt) for prompt in prompts]
    p_colour, p_shape = classify(load_classifier(name), torch.tensor(pixels), captions)
    assert (p_colour > 0.5).float().mean() >= 0.95
    assert (p_shape > 0.5).float().mean() >= 0.95


def test_classifiers_are_two() -> None:
    one, other = load_classifier(REWARD_CLASSIFIER), load_classifier(INDEPENDENT_CLASSIFIER)
    assert sum(p.numel() for p in one.parameters()) != sum(p.numel() for p in other.parameters())


def test_loading_a_classifier_leaves_the_random_stream_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load_classifier(REWARD_CLASSIFIER)
    assert torch.equal(torch.rand(4), expected)


def test_a_template_scores_one() -> None:
    label = CAPTIONS.index("a green cross")
    templates = to_pixels(draw_templates(label, NUM_TEMPLATES, SEED)[:8])
    scores = score(shapes.both, templates, ["a green cross"] * 8)
    assert min(scores.components["template"]) > 0.999


def test_fresh_drawings_score_high_and_wrong_ones_low() -> None:
    pixels, prompts = draw_unseen(72)
    wrong = [CAPTIONS[(CAPTIONS.index(prompt) + 7) % 36] for prompt in prompts]
    assert np.mean(_values(score(shapes.both, pixels, prompts))) > 0.85
    assert np.mean(_values(score(shapes.both, pixels, wrong))) < 0.35
    assert np.mean(_values(score(shapes.independent, pixels, prompts))) > 0.95
    assert np.mean(_values(score(shapes.independent, pixels, wrong))) < 0.05


def _values(scores: Scores) -> list[float]:
    assert not scores.failures
    return [value for value in scores.values if value is not None]


def test_the_reward_is_the_mean_of_its_parts() -> None:
    pixels, prompts = draw_unseen(20)
    noisy = (pixels + np.random.default_rng(0).normal(0, 0.3, pixels.shape)).clip(0, 1).astype(np.float32)
    scores = score(shapes.both, noisy, prompts)
    parts = scores.components
    mean = np.add(parts["classifier"], parts["template"]) / 2
    assert np.allclose(_values(scores), mean, atol=1e-6)
    assert set(parts["accuracy"]) <= {0.0, 1.0}
    assert set(parts) == {"classifier", "template", "accuracy"}


def test_template_scores_do_not_depend_on_the_samples_beside() -> None:
    pixels, prompts = draw_unseen(1)
    captions = [parse_caption(prompts[0])]
    image = torch.tensor(pixels) * 0.7
    alone = TemplateBank().score(image, captions)
    among = TemplateBank().score(image.repeat(40, 1, 1, 1), captions * 40)
    assert torch.equal(among, alone.expand(40))


def test_noise_scores_near_nothing() -> None:
    rng = np.random.default_rng(0)
    noise = rng.random((36, 3, 16, 16), dtype=np.float32)
    assert np.mean(score(shapes.both, noise, list(CAPTIONS)).components["template"]) < 0.05


@pytest.mark.parametrize("spec", [shapes.both, shapes.independent])
def test_a_prompt_that_names_no_shape_is_an_error(spec: RewardSpec) -> None:
    pixels, prompts = draw_unseen(2)
    with pytest.raises(ValueError, match="'a photo of a cat'"):
        score(spec, pixels, [prompts[0], "a photo of a cat"])


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (2, 1, 16, 16), (3, 3, 16, 16), (2, 5, 3, 16, 16)])
def test_pixels_of_another_form_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="3, 16, 16"):
        score(shapes.both, np.zeros(shape, np.float32), ["a red circle"] * 2)


def test_read_only_pixels_are_scored() -> None:
    pixels, prompts = draw_unseen(2)
    pixels.flags.writeable = False
    assert len(score(shapes.both, pixels, prompts).values) == 2


def test_the_spec_modules_import_no_torch() -> None:
    code = "import sys; import digend.rewards.shapes, digend.rewards.jpeg; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
