"""An engine without torch: canned results, steered by the task's own numbers.

A generate task runs `sigmas[0]` ticks of `TICK_S`; its pixels are one byte, the version that is loaded. An update's
`z0` picks how it ends (see `ENDS`), anything else applies the micro-batch.
"""

import random
import threading
from collections.abc import Callable, Mapping

from digend.engines.protocols import Context, TaskFault
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import (
    CommitResult,
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    PrepareResult,
    PrepareTask,
    ResultBody,
    SampleScore,
    ScoreResult,
    ScoreTask,
    TaskBody,
    UpdateResult,
    UpdateTask,
)
from digend.wire.tensors import Array
from tests.worker.fake_ranks import FakeRanks

TICK_S = 0.02
NAMES = ("net/a", "net/b", "net/c")

RAISE, OUT_OF_MEMORY, FAULT, WEDGE, HUGE = -1, -2, -3, -4, -5


def byte(value: int) -> Array:
    return Array("uint8", (1,), bytes([value]))


def weights_of(version: int, names: tuple[str, ...] = NAMES) -> dict[str, Array]:
    return {name: byte(version) for name in names}


def _out_of_memory() -> None:
    raise MemoryError("a very large tensor")


def _raise() -> None:
    raise RuntimeError("shapes do not match")


def _fault() -> None:
    raise TaskFault("non_finite", "loss at timestep 3 is nan")


def _wedge() -> None:
    threading.Event().wait()


ENDS: dict[int, Callable[[], None]] = {RAISE: _raise, OUT_OF_MEMORY: _out_of_memory, FAULT: _fault, WEDGE: _wedge}


class FakeEngine(FakeRanks):
    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.global_step = 0
        self.jobs: set[str] = set()
        self.done: list[int] = []
        self._actions: dict[str, Callable[..., ResultBody]] = {
            "prepare": self._prepare,
            "encode": self._encode,
            "generate": self._generate,
            "score": self._score,
            "update": self._update,
            "commit": self._commit,
        }

    def run(self, task: TaskBody, context: Context) -> ResultBody:
        return self._actions[task.kind](task, context)

    def check_weights(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> int:
        missing = [name for name in NAMES if name not in tensors]
        if missing:
            raise TaskFault("weights", f"no tensor for {missing[0]}")
        return len(tensors)

    def adopt(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> None:
        self.version = tensors["net/a"].data[0]

    def end(self, job: str) -> None:
        self.jobs.discard(job)

    def applied(self, job: str) -> tuple[int, int, tuple[int, ...]]:
        return self.version, self.global_step, tuple(self.done)

    def _prepare(self, task: PrepareTask, context: Context) -> PrepareResult:
        with context.stage("load"):
            self.jobs.add(task.job)
        return PrepareResult(base_digest="d", num_parameters=3, num_trainable=3, sigmas=(1.0, 0.0), eval_sigmas=())

    def _encode(self, task: EncodeTask, context: Context) -> EncodeResult:
        serve = context.serve
        conditions = {prompt.uid: serve({"text": _text(prompt.text)}) for prompt in task.prompts}
        return EncodeResult(conditions=conditions)

    def _generate(self, task: GenerateTask, context: Context) -> GenerateResult:
        ticks = int(task.sigmas[0])
        samples = context.serve({"p0/0/pixels": byte(self.version)})
        for group in task.groups:
            context.pull(group.condition)
        with context.stage("generate"):
            for tick in range(ticks):
                threading.Event().wait(TICK_S)
                context.progress(tick + 1, ticks)
        return GenerateResult(trajectory=None, samples=samples, num_samples=1)

    def _score(self, task: ScoreTask, context: Context) -> ScoreResult:
        return ScoreResult(scores=tuple(self._score_one(item.index, item.blob, context) for item in task.items))

    def _score_one(self, index: int, blob: BlobRef, context: Context) -> SampleScore:
        pixels = context.pull(blob, ["p0/0/pixels"])["p0/0/pixels"]
        return SampleScore(prompt="p0", index=index, reward=float(pixels.data[0]), components={})

    def _update(self, task: UpdateTask, context: Context) -> UpdateResult:
        ENDS.get(task.z0, lambda: None)()
        self.done.append(task.micro_batch)
        count = 30_000 if task.z0 == HUGE else 0
        rng = random.Random(0)
        pairs = tuple((rng.randbytes(8).hex(), 0, 0, rng.random()) for _ in range(count))
        return UpdateResult(
            num_pairs=1,
            loss_sum=0.0,
            clipped=0,
            ratio_sum=1.0,
            max_abs_log_ratio=0.0,
            kl_sum=0.0,
            pairs=pairs,
        )

    def _commit(self, task: CommitTask, context: Context) -> CommitResult:
        self.version, self.global_step, self.done = task.version + 1, task.global_step + 1, []
        with context.stage("publish"):
            blob = context.serve(weights_of(self.version))
        weights = WeightsRef(
            blob=blob,
            job=task.job,
            incarnation=task.incarnation,
            version=self.version,
            num_tensors=len(NAMES),
            form="full",
        )
        return CommitResult(gradient_norm=1.0, learning_rate=0.1, weights=weights)


def _text(text: str) -> Array:
    data = text.encode()
    return Array("uint8", (len(data),), data)
