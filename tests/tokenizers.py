"""Tokenizers for tiny pipelines, the same in every process.

CLIP's and T5's vocabularies are written by hand, because trained ones differ from process to process. Those of
Qwen-Image and HunyuanVideo are byte-level BPEs trained on the pipelines' own templates: their training is repeatable,
and gives the templates exactly as many tokens as the stock pipelines cut off (34 and 95).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import CLIPTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer, T5TokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

WORDS = ("a", "red", "green", "blue", "circle", "square", "triangle", "of", "photo")
_QWEN_MARKS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_LLAMA_MARKS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<pad>",
)


def clip_tokenizer() -> Any:
    """Byte-level pieces only: every character is a token, the last of a word marked."""
    alphabet = _alphabet()
    tokens = [*alphabet, *(byte + "</w>" for byte in alphabet), "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocab, merges=[], model_max_length=77)


def t5_tokenizer(max_tokens: int) -> Any:
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    characters = [(chr(code), -8.0) for code in range(33, 127)]
    words = [("▁" + word, -1.0) for word in WORDS]
    return T5TokenizerFast(vocab=specials + words + characters, extra_ids=0, model_max_length=max_tokens)


def qwen_tokenizer(template: str) -> Any:
    vocab, merges = _trained(template)
    vocab.update({mark: len(vocab) + index for index, mark in enumerate(_QWEN_MARKS)})
    return Qwen2Tokenizer(
        vocab=vocab, merges=merges, additional_special_tokens=list(_QWEN_MARKS[1:]), model_max_length=2048
    )


def llama_tokenizer(template: str) -> Any:
    vocab, merges = _trained(template)
    vocab.update({mark: len(vocab) + index for index, mark in enumerate(_LLAMA_MARKS)})
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    made.pre_tokenizer = _splitter()
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(mark, special=True) for mark in _LLAMA_MARKS])
    begin = _LLAMA_MARKS[0]
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A $B", special_tokens=[(begin, vocab[begin])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=begin,
        eos_token=_LLAMA_MARKS[1],
        pad_token=_LLAMA_MARKS[-1],
        padding_side="right",
        model_max_length=2048,
    )


def _trained(template: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level BPE in which every word of the template is one token."""
    pieces = re.sub(r"<\|[^|]*\|>|\{\}", "\x00", template).split("\x00")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = _splitter()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=_alphabet(), special_tokens=[], show_progress=False)
    texts: Sequence[str] = [piece for piece in pieces if piece] + [" ".join(WORDS)]
    made.train_from_iterator(list(texts) * 4, trainer)
    model = json.loads(made.to_str())["model"]
    return dict(model["vocab"]), [(left, right) for left, right in model["merges"]]


def _splitter() -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _alphabet() -> list[str]:
    """Sorted: its own order is another in every process."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())
