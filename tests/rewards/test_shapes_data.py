"""The drawn shapes: captions, determinism, and what the drawings look like."""

import hashlib

import numpy as np
import pytest

from digend.rewards.shapes_data import (
    CAPTIONS,
    COLOURS,
    SHAPES,
    draw,
    draw_dataset,
    draw_templates,
    parse_caption,
)


def test_thirty_six_captions_parse_to_their_own_label() -> None:
    assert len(set(CAPTIONS)) == 36
    assert [parse_caption(caption).label for caption in CAPTIONS] == list(range(36))


def test_caption_ignores_blanks_and_capitals() -> None:
    assert parse_caption("  A  Yellow ring\n") == parse_caption("a yellow ring")


@pytest.mark.parametrize(
    "prompt",
    ["", "a red", "red circle", "a circle red", "a pink circle", "a red star", "a red circle and a ring"],
)
def test_other_prompts_are_refused_by_name(prompt: str) -> None:
    with pytest.raises(ValueError, match="names no drawn shape") as caught:
        parse_caption(prompt)
    assert repr(prompt) in str(caught.value)


def test_one_seed_gives_one_dataset() -> None:
    pixels, labels = draw_dataset(50, seed=3)
    again, labels_again = draw_dataset(50, seed=3)
    other, _ = draw_dataset(50, seed=4)
    assert np.array_equal(pixels, again)
    assert np.array_equal(labels, labels_again)
    assert not np.array_equal(pixels, other)


def test_the_numbers_drawn_do_not_depend_on_the_shape() -> None:
    after = []
    for shape in SHAPES:
        rng = np.random.default_rng(5)
        draw("red", shape, rng)
        after.append(rng.random())
    assert len(set(after)) == 1


def test_templates_of_a_caption_do_not_depend_on_others_drawn_before() -> None:
    alone = draw_templates(7, 3, seed=7)
    draw_templates(6, 3, seed=7)
    assert np.array_equal(draw_templates(7, 3, seed=7), alone)
    assert not np.array_equal(draw_templates(8, 3, seed=7), alone)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("colour", COLOURS)
def test_a_drawing_shows_its_colour_on_black(colour: str, shape: str) -> None:
    pixels = draw(colour, shape, np.random.default_rng(1)).astype(int)
    assert pixels.shape == (16, 16, 3)
    brightest = pixels.reshape(-1, 3)[pixels.sum(axis=2).argmax()]
    assert np.abs(brightest - np.array(COLOURS[colour])).max() < 60
    assert (pixels.sum(axis=2) == 0).mean() > 0.2


def test_shapes_differ_under_one_seed() -> None:
    digests = {hashlib.sha256(draw("red", shape, np.random.default_rng(1)).tobytes()).digest() for shape in SHAPES}
    assert len(digests) == len(SHAPES)
