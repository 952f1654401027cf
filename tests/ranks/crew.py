"""Rank 0 in this process, the others in processes of their own, over real gloo; and what they come to together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from digend.config.job import JobConfig
from digend.engines.arrays import to_tensor
from digend.engines.engine import LocalEngine
from digend.wire.ranks import Ranks
from digend.wire.tasks import UpdateItem
from tests.engines.world import NUM_PAIRS, Bench, MemoryContext, bench
from tests.ranks.follower import parts

TIMEOUT_S = 60.0
LARGEST_IN_DOUBLE = 1e-9


class Follower:
    """One process; it is reused from case to case, because starting one takes seconds."""

    def __init__(self, root: Path, number: int) -> None:
        self.errors = (root / f"follower-{number}.txt").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.follower", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def order(self, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return str(json.loads(line)) if line else "dead"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            assert stream is not None
            stream.close()


@dataclass
class Crew:
    """Ranks that are formed anew for each case."""

    root: Path
    followers: list[Follower] = field(default_factory=list)
    epoch: int = 0
    joined: int = 1

    def need(self, size: int) -> None:
        """As many live followers."""
        for old in [each for each in self.followers if each.process.poll() is not None]:
            old.close()
            self.followers.remove(old)
        fresh = [Follower(self.root, self.epoch * 10 + number) for number in range(size - 1 - len(self.followers))]
        self.followers += fresh
        for each in fresh:
            assert each.answer() == "ready", Path(each.errors.name).read_text("utf-8")

    def form(
        self,
        size: int,
        replicas: int,
        *,
        timeout_s: float = TIMEOUT_S,
        orders: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> LocalEngine:
        """Rank 0's engine, joined with the others; `orders`: further fields of `Order` by rank."""
        self.need(size)
        self.epoch += 1
        self.joined = size
        engine = LocalEngine("trainer", "cpu", self.root / "runs", self.root / "state")
        if size == 1:
            return engine
        ranks: dict[str, Any] = {
            "epoch": self.epoch,
            "size": size,
            "replicas": replicas,
            "store": engine.open_store("127.0.0.1"),
            "timeout_s": timeout_s,
        }
        for rank, follower in enumerate(self.followers[: size - 1], start=1):
            follower.order(ranks={**ranks, "rank": rank}, **(orders or {}).get(rank, {}))
        engine.join(Ranks(rank=0, **ranks))
        return engine

    def bench(self, config: JobConfig, *, orders: Mapping[int, Mapping[str, Any]] | None = None, **what: Any) -> Bench:
        training = config.training
        engine = self.form(training.ranks, training.num_replicas, orders=orders)
        return bench("trainer", config, self.root, engine=engine, **what)

    def leave(self, on: Bench) -> list[str]:
        """Rank 0 leaves; how the others ended."""
        on.engine.leave()
        return self.answers()

    def answers(self) -> list[str]:
        return [each.answer() for each in self.followers[: self.joined - 1]]

    def gradient(self, on: Bench, files: Sequence[Path], shards: int) -> dict[str, torch.Tensor]:
        """Of all ranks of the first replica, after they have left."""
        each_rank = [parts(on.engine), *(load_file(file) for file in files[: shards - 1])]
        return {name: torch.cat([part[name] for part in each_rank]) for name in each_rank[0]}

    def close(self) -> None:
        for each in self.followers:
            each.close()


def micro_batches(on: Bench, step: int) -> list[list[UpdateItem]]:
    """A micro-batch a prompt, of samples that rank 0, or all ranks, draw."""
    groups = on.groups(step)
    task = on.generate_task(version=step, step=step, groups=groups)
    items = on.items(groups, on.generate(task))
    return [[item for item in items if item.prompt == group.prompt] for group in groups]


def global_steps(on: Bench, steps: Sequence[int]) -> None:
    for step in steps:
        for number, items in enumerate(micro_batches(on, step)):
            on.update(items, micro_batch=number, step=step)
        assert on.commit(version=step, step=step, micro_batches=(0, 1), z=NUM_PAIRS).weights is not None


def published(context: MemoryContext) -> dict[str, torch.Tensor]:
    """The newest weights that were served."""
    blobs = [blob for blob in context.blobs.values() if any(name.startswith("transformer/") for name in blob)]
    return {name: to_tensor(array) for name, array in blobs[-1].items()}


def distance(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> float:
    """The largest difference of two values."""
    assert left.keys() == right.keys()
    return max(float((left[name].double() - right[name].double()).abs().max()) for name in left)
