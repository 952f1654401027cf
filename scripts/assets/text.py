"""The demo model's text side: hand-written word-level vocabularies and frozen random encoders.

Owns the words and both tokenizers. Nothing is trained: trained vocabularies differ from process to process
(feasibility section 2), hand-written ones cannot. Invariant: every word of WORDS is one token in both
tokenizers, and the vocabularies depend on WORDS and on nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from digend.rewards.shapes_data import COLOUR_NAMES, SHAPES

WIDTH = 32
"""Width of both encoders, so also the transformer's joint and pooled widths."""
MAX_WORDS = 8
"""T5 tokens a prompt is padded to, in pretraining and ever after: padding is not masked, so it is seen."""

WORDS = (
    *("a", "an", "the", "of", "and", "on", "in", "with", "photo", "picture", "drawing"),
    *("background", "black", "small", "large", "left", "right", "top", "bottom"),
    *COLOUR_NAMES,
    *SHAPES,
)
_WORD_END = "</w>"
_CLIP_SPECIALS = ("<|startoftext|>", "<|endoftext|>")


def clip_vocabulary(words: tuple[str, ...] = WORDS) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level BPE that joins each word to one token; any other text falls to bytes.

    Each word's merges are the joins, left to right, of the pieces that the merges before it leave. They come
    after all earlier ones in rank, so no later word can break an earlier one.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(byte + _WORD_END for byte in alphabet)]
    merges: list[tuple[str, str]] = []
    for word in words:
        head, *rest = apply_merges([*word[:-1], word[-1] + _WORD_END], merges)
        for piece in rest:
            merges.append((head, piece))
            head += piece
            tokens.append(head)
    unique = dict.fromkeys([*tokens, *_CLIP_SPECIALS])
    return {token: i for i, token in enumerate(unique)}, merges


def apply_merges(pieces: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """What a BPE with these merges, most important first, makes of one word's pieces."""
    for left, right in merges:
        for i in range(len(pieces) - 2, -1, -1):
            if pieces[i : i + 2] == [left, right]:
                pieces = [*pieces[:i], left + right, *pieces[i + 2 :]]
    return pieces


def t5_vocabulary(words: tuple[str, ...] = WORDS) -> list[tuple[str, float]]:
    """A unigram vocabulary of whole words, with printable ASCII characters for any other text."""
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    characters = [(chr(code), -8.0) for code in range(33, 127)]
    return specials + [("▁" + word, -1.0) for word in words] + characters


def build_clip_tokenizer() -> Any:
    """A stock CLIPTokenizer over the hand-written vocabulary."""
    vocab, merges = clip_vocabulary()
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77)


def build_t5_tokenizer() -> Any:
    """A stock T5TokenizerFast over the hand-written vocabulary; ids 0, 1, 2 are pad, end and unknown."""
    return T5TokenizerFast(vocab=t5_vocabulary(), extra_ids=0, model_max_length=64)


def build_encoders(clip_tokenizer: Any, t5_tokenizer: Any, seed: int) -> tuple[Any, Any]:
    """The frozen random CLIP text model (pooled) and T5 encoder (one vector a token), in eval mode."""
    clip_config = CLIPTextConfig(
        vocab_size=len(clip_tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=WIDTH,
        bos_token_id=clip_tokenizer.bos_token_id,
        eos_token_id=clip_tokenizer.eos_token_id,
        pad_token_id=clip_tokenizer.pad_token_id,
    )
    t5_config = T5Config(
        vocab_size=len(t5_tokenizer),
        d_model=WIDTH,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        clip, t5 = CLIPTextModel(clip_config), T5EncoderModel(t5_config)
    return clip.eval().requires_grad_(False), t5.eval().requires_grad_(False)
