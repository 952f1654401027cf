"""Which prompts a global step trains on.

A function of the step number, so that resume has no sampler state to restore. The prompts of all steps are
one endless sequence, cut in pieces of `prompts_per_step`: one seeded permutation of the whole set an epoch,
after one another. A step may straddle the end of an epoch; the new epoch's order is then repaired so that
no prompt comes twice in the step, and each epoch still holds every prompt exactly once.
"""

from functools import lru_cache

from digend.rl.seeds import permutation


def prompts_of_step(num_prompts: int, prompts_per_step: int, step: int, seed: int) -> tuple[int, ...]:
    """Indices, in [0, num_prompts), of the distinct prompts of global step `step` (from 0).

    Raises ValueError when a step cannot be filled without repetition, or a count or the step is out of range.
    """
    if prompts_per_step < 1 or step < 0:
        raise ValueError(f"need prompts_per_step >= 1 and step >= 0, got {prompts_per_step=}, {step=}")
    if prompts_per_step > num_prompts:
        raise ValueError(
            f"prompts_per_step ({prompts_per_step}) exceeds num_prompts ({num_prompts}): "
            "a global step would repeat a prompt"
        )
    epoch, at = divmod(step * prompts_per_step, num_prompts)
    head = _order(num_prompts, prompts_per_step, epoch, seed)[at : at + prompts_per_step]
    missing = prompts_per_step - len(head)
    return head + _order(num_prompts, prompts_per_step, epoch + 1, seed)[:missing] if missing else head


def _carried(num_prompts: int, prompts_per_step: int, epoch: int) -> int:
    """How many prompts of the step that straddles the start of `epoch` come from the epoch before."""
    return epoch * num_prompts % prompts_per_step


@lru_cache(maxsize=4)
def _order(num_prompts: int, prompts_per_step: int, epoch: int, seed: int) -> tuple[int, ...]:
    """The prompts of one epoch in order, repaired at its head.

    A repair reads the tail of the epoch before, and itself moves only the first `prompts_per_step` places.
    So it starts from the nearest earlier epoch whose tail no repair can reach; only sets smaller than two
    steps look further back.
    """
    first = epoch
    while (carried := _carried(num_prompts, prompts_per_step, first)) > 0:
        first -= 1
        if num_prompts >= prompts_per_step + carried:
            break
    order = permutation(num_prompts, "prompts", seed, first)
    for later in range(first + 1, epoch + 1):
        carried = _carried(num_prompts, prompts_per_step, later)
        raw = permutation(num_prompts, "prompts", seed, later)
        order = _without_repeats(raw, frozenset(order[len(order) - carried :]), prompts_per_step - carried)
    return order


def _without_repeats(order: tuple[int, ...], taken: frozenset[int], num_head: int) -> tuple[int, ...]:
    """Move the first `num_head` prompts that are not `taken` to the front; the others keep their order."""
    head = [prompt for prompt in order[: num_head + len(taken)] if prompt not in taken][:num_head]
    placed = set(head)
    return (*head, *(prompt for prompt in order if prompt not in placed))
