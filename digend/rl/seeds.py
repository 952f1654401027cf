"""Deterministic draws keyed by what they are for, with no state to save.

Every draw is a hash of its key, a tuple of ints and strings such as `("window", job_seed, global_step,
prompt_uid)`. Nothing is consumed, so draws may be made in any order, on any machine, and again after a
restart: the same key gives the same value on every platform and Python version (values are pinned in the
tests; changing them breaks resume and replay).

Invariant: distinct keys are distinct streams. The encoding is injective: `("a", "b")`, `("ab",)`, `(1,)`
and `("1",)` differ. Not for cryptography.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

Key = int | str

_WORD_BITS = 64
_WORDS_PER_BLOCK = 8


def _encode(key: tuple[Key, ...]) -> bytes:
    return b"".join([_encode_item(item) for item in key])


def _encode_item(item: Key) -> bytes:
    if isinstance(item, str):
        tag, raw = b"s", item.encode()
    elif isinstance(item, int) and not isinstance(item, bool):
        tag, raw = b"i", str(item).encode()
    else:
        raise TypeError(f"a seed key holds ints and strings, not {item!r}")
    return tag + len(raw).to_bytes(8, "big") + raw


def _tail(counter: int) -> bytes:
    """What ends the hash of the words of a stream from `8 * counter` on."""
    return b"#" + counter.to_bytes(8, "big")


def _words(purpose: bytes, key: tuple[Key, ...]) -> Iterator[int]:
    """An endless stream of uniform 64-bit words, one stream a (purpose, key)."""
    root = blake2b(_encode(key), person=purpose)
    counter = 0
    while True:
        block = root.copy()
        block.update(_tail(counter))
        digest = block.digest()
        for at in range(_WORDS_PER_BLOCK):
            yield int.from_bytes(digest[8 * at : 8 * at + 8], "big")
        counter += 1


def _below(span: int, words: Iterator[int]) -> int:
    """Uniform in [0, span): words of the incomplete last round are rejected, so there is no modulo bias."""
    limit = (1 << _WORD_BITS) // span * span
    return next(word for word in words if word < limit) % span


def seed_of(*key: Key) -> int:
    """A 63-bit seed in [0, 2**63) for `torch.Generator.manual_seed`. Raises TypeError for a key that is no
    int or str.
    """
    return next(_words(b"digend.seed", key)) >> 1


def seeds_of(last: Iterable[Key], *key: Key) -> tuple[int, ...]:
    """`seed_of(*key, each)` for each of `last`; a rollout draws two a sample, which are nearly all the driver draws."""
    root = blake2b(_encode(key), person=b"digend.seed")
    return tuple(_seed(root.copy(), each) for each in last)


def _seed(root: blake2b, last: Key) -> int:
    root.update(_encode((last,)) + _tail(0))
    return int.from_bytes(root.digest()[:8], "big") >> 1


def uniform_int(lo: int, hi: int, *key: Key) -> int:
    """A uniform integer of [lo, hi], both ends included, without bias. Raises ValueError when hi < lo."""
    span = hi - lo + 1
    if span < 1 or span > 1 << _WORD_BITS:
        raise ValueError(f"uniform_int needs lo <= hi and at most 2**64 values, got lo={lo}, hi={hi}")
    return lo + _below(span, _words(b"digend.uniform", key))


def choice_without_replacement(n: int, k: int, *key: Key) -> tuple[int, ...]:
    """k distinct integers of range(n), in random order; equals the first k of `permutation(n, *key)`.

    Raises ValueError unless 0 <= k <= n. Costs O(k), whatever n (Fisher-Yates over a sparse array).
    """
    if not 0 <= k <= n:
        raise ValueError(f"cannot choose k={k} of n={n} without replacement")
    words = _words(b"digend.choice", key)
    moved: dict[int, int] = {}
    chosen = []
    for at in range(k):
        other = at + _below(n - at, words)
        chosen.append(moved.get(other, other))
        moved[other] = moved.pop(at, at)
    return tuple(chosen)


def permutation(n: int, *key: Key) -> tuple[int, ...]:
    """A uniform permutation of range(n). Raises ValueError when n is negative."""
    return choice_without_replacement(n, n, *key)
