"""The hand-written vocabularies: the same in every process, and the ones that were shipped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.assets.text import WORDS, apply_merges, clip_vocabulary, t5_vocabulary

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs/models/shapes-flux"


def load_tokenizer_model(name: str) -> Any:
    return json.loads((FOLDER / name / "tokenizer.json").read_text(encoding="utf-8"))["model"]


def test_the_shipped_clip_vocabulary_is_the_hand_written_one() -> None:
    vocab, merges = clip_vocabulary()
    model = load_tokenizer_model("tokenizer")
    assert model["vocab"] == vocab
    assert [tuple(merge) for merge in model["merges"]] == merges


def test_the_shipped_t5_vocabulary_is_the_hand_written_one() -> None:
    assert [tuple(entry) for entry in load_tokenizer_model("tokenizer_2")["vocab"]] == t5_vocabulary()


@pytest.mark.matrix
def test_another_process_makes_the_same_vocabulary() -> None:
    code = "from scripts.assets.text import clip_vocabulary as c, t5_vocabulary as t; print(repr((c(), t())))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    other = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert other.stdout.strip() == repr((clip_vocabulary(), t5_vocabulary()))


def test_words_that_share_pieces_stay_whole() -> None:
    """ "triangle" holds "ri" of "ring", and the other way round: neither may break the other."""
    for words in (("ring", "triangle"), ("triangle", "ring"), WORDS):
        vocab, merges = clip_vocabulary(words)
        for word in words:
            assert apply_merges([*word[:-1], word[-1] + "</w>"], merges) == [word + "</w>"]
            assert word + "</w>" in vocab
