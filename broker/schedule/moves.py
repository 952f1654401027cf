"""The trainer's moves on a supply, for searches: each does a whole task and returns when the trainer is free."""

from collections.abc import Sequence

from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supplies import supply_of
from broker.schedule.supply import LATER, OWN, Supply
from broker.schedule.times import Times


def tag(supply: Supply, now: int, generating: bool, times: Times) -> int:
    """Generate one micro-batch of the open global step."""
    supply.pending -= 1
    end = now + assist_of(times) + (0 if generating else times.switch)
    supply.advance(end, OWN)
    return end


def update(supply: Supply, now: int, generating: bool, times: Times) -> int:
    supply.ready -= 1
    end = now + times.update + (times.switch if generating else 0)
    supply.advance(end)
    return end


def assist_of(times: Times) -> int:
    if times.assist is None:
        raise AssertionError("no TAG without a time for it")
    return times.assist


def back(generating: bool, times: Times) -> int:
    """How much longer the next update is."""
    return times.switch if generating else 0


def finish(supply: Supply, now: int, longer: int, times: Times, commits: Sequence[int]) -> int:
    """When the last update ends if the trainer only updates from `now` on, the first one `longer`, and commits after so
    many updates each. What an arrival in UQ forces is the updates and commits from it on: those before the first commit
    force it once they have ended, and so forth.
    """
    end = supply.finish(now, longer, times.update)
    left = supply.remaining()
    for nth, num in enumerate(commits):
        after = (left - num) * times.update + (len(commits) - nth) * times.commit
        end = max(end, supply.first(num).finish(now, longer, times.update) + after)
    return end


def run_out(supply: Supply, now: int, generating: bool, times: Times) -> int:
    """When the last update ends if the trainer only updates from `now` on. One by one, so exact in every situation."""
    left = supply.remaining()
    while left:
        if not supply.ready:
            now = supply.wait()
        now = update(supply, now, generating, times)
        generating = False
        left -= 1
    return now


def stale_is_free(model: Model, snapshot: Snapshot) -> bool:
    """Whether the trainer may generate one stale micro-batch now, UQ empty and none pending, without moving the end of
    the open global step.
    """
    times = model.times
    without = run_out(supply_of(model, snapshot), 0, snapshot.generating, times)
    supply = supply_of(model, snapshot)
    supply.stale -= 1
    end = assist_of(times) + (0 if snapshot.generating else times.switch)
    supply.advance(end, LATER)
    return run_out(supply, end, True, times) <= without
