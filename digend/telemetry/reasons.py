"""Reasons in words: why the strategy answered as it did, and what would shorten a bubble of some cause.

Pure; the causes are those of `broker.dispatch`, the strategies those of docs/scheduling.md.
"""

from digend.telemetry.trail import Asked, Trail

_REMEDIES = {
    "generation": "more or faster generators; a strategy that inserts TAG; a larger schedule.staleness",
    "reward": 'faster rewards, or more reward processes (schedule.scoring = "dedicated"); smaller micro-batches',
    "update": "a faster trainer, or another one (training.timestep_width; digenctl plan); a larger schedule.staleness",
    "weights": 'a larger schedule.staleness; less to publish (training.trainable = "lora"); a faster network',
    "no room for tensors": "more room (blobs.memory_gib, blobs.spool_gib of the node file); a faster trainer",
    "encoding of prompts": "fewer distinct prompts, or a faster text encoder: each prompt is encoded once",
    "no sample to score": 'fewer reward processes, or none (schedule.scoring = "colocated"); faster generators',
}


def remedy(cause: str) -> str:
    """What would shorten bubbles of that cause; empty where nothing is known to."""
    return _REMEDIES.get(cause, "")


def why(trail: Trail, asked: Asked) -> str:
    """Why that answer."""
    strategy = asked.decision.strategy
    if strategy in ("bts", "planned"):
        return _searched(asked) if asked.decision.states else _unsearched(trail, asked)
    return _ruled(strategy.partition(":")[0], asked)


def _ruled(strategy: str, asked: Asked) -> str:
    decision = asked.decision
    if decision.answer == "tag":
        return "UQ is empty" if strategy == "always" else "its TAG come first, whatever UQ holds"
    if decision.answer == "update":
        return "UQ is not empty"
    return "it never inserts TAG" if strategy == "never" else "its TAG of this global step are done"


def _searched(asked: Asked) -> str:
    decision = asked.decision
    past = "; the search ran out of budget, so this is the answer of planned" if decision.exhausted else ""
    if decision.answer == "tag":
        return f"{decision.tags} TAG from here on end the step {_gain(asked)}{past}"
    if decision.tags:
        return f"{decision.tags} TAG later, not now, end the step {_gain(asked)}{past}"
    return f"no number of TAG ends the step sooner{past}"


def _gain(asked: Asked) -> str:
    end, without = asked.decision.end_us, asked.decision.without_us
    return "sooner" if end is None or without is None else f"{(without - end) / 1e6:.3f} s sooner"


def _unsearched(trail: Trail, asked: Asked) -> str:
    decision = asked.decision
    if decision.answer == "update" and not decision.pending:
        return "nothing is left to generate"
    if decision.answer == "update" and decision.strategy == "bts":
        return "UQ is not empty"
    if _foresees(trail, asked):
        return {
            "update": "all of this global step is claimed; updates come before stale work",
            "tag": "stale work of the next global step, which does not move the commit",
        }.get(decision.answer, "only stale work was left, and making it would move the commit")
    return {
        "update": "nothing could be predicted yet, and UQ is not empty",
        "probe": "nothing could be predicted yet; TAG of one sample measures how long it takes",
        "tag": "nothing could be predicted yet, and nobody else generates",
    }.get(decision.answer, "nothing could be predicted yet, and TAG has been measured")


def _foresees(trail: Trail, asked: Asked) -> bool:
    """Whether a strategy that did not search knew the times: then all of the open rollout was claimed."""
    return trail.searched_before(asked) or not trail.generates_after(asked.until, asked.at_ns)
