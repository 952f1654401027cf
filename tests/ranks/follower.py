"""A rank other than 0 in a process of its own: `python -m tests.ranks.follower ROOT`.

Reads orders from stdin, a JSON object a line (`Order`), and answers each with a line: how it ended.
"""

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from safetensors.torch import save_file

from digend.engines import rollout, stored
from digend.engines.engine import LocalEngine
from digend.engines.protocols import Cancelled, TaskFault
from digend.engines.ranks import outlines
from digend.wire.ranks import Ranks
from tests.engines.world import MemoryContext
from tests.ranks.doubles import throughout_in


@dataclass(kw_only=True)
class Order:
    """Join and follow. At progress call `at` of a task, counted from the first: `die`, or have the lease revoked
    (`cancel`). `leave`: after half a second, from another thread. `spoil`: what it draws is not finite. Of checkpoints:
    `elsewhere`, its disk is another one; `full`, its disk has no room; `killed`, it dies when it would write.
    `gradients`: where its parts go afterwards. `throughout`: of the type, see doubles.py."""

    ranks: dict[str, Any]
    at: int = 0
    what: str = ""
    gradients: str = ""
    throughout: str = ""


class FollowerContext(MemoryContext):
    order: Order

    def progress(self, done: int, total: int) -> None:
        if total == 0:
            return
        self.steps.append((done, total))
        if len(self.steps) == self.order.at:
            if self.order.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise Cancelled("told to stop")


def parts(engine: LocalEngine) -> dict[str, Any]:
    """This rank's part of each gradient."""
    assert engine._job is not None
    grads = {name: each.grad for name, each in engine._job.policy.parameters.items() if each.grad is not None}
    return {name: (grad.to_local() if hasattr(grad, "to_local") else grad).contiguous() for name, grad in grads.items()}


@contextmanager
def spoiled() -> Iterator[None]:
    """No rollout in this process has a finite sample."""
    plain = rollout._Roll.advance

    def spoiling(roll: rollout._Roll, index: int) -> None:
        plain(roll, index)
        roll.latents = roll.latents * float("nan")

    with patch.object(rollout._Roll, "advance", spoiling):
        yield


@contextmanager
def elsewhere(engine: LocalEngine) -> Iterator[None]:
    """As on another host: its runs lie apart, and it sees no checkpoint of rank 0."""
    plain, engine._runs_dir = engine._runs_dir, engine._runs_dir / "elsewhere"
    try:
        with patch.object(outlines, "mark_of", lambda _: ""):
            yield
    finally:
        engine._runs_dir = plain


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def obey(engine: LocalEngine, order: Order) -> str:
    context = FollowerContext()
    context.order = order
    around: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "spoil": spoiled,
        "elsewhere": lambda: elsewhere(engine),
        "full": lambda: patch.object(stored, "save_file", no_room),
        "killed": lambda: patch.object(stored, "save_file", killed),
    }
    try:
        engine.join(Ranks(**order.ranks))
        if order.what == "leave":
            threading.Timer(0.5, engine.leave).start()
        with around.get(order.what, nullcontext)(), throughout_in(order.throughout):
            engine.follow(context)
        outcome = "left"
    except TaskFault as fault:
        outcome = f"{fault.error.reason}: {fault.error.message}"
    except Cancelled:
        outcome = "cancelled"
    if order.gradients:
        save_file(parts(engine), order.gradients)
    engine.leave()
    return outcome


def main(root: Path) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what is logged is no answer
    engine = LocalEngine("trainer", "cpu", root / "runs", root / "state")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(engine, Order(**json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
