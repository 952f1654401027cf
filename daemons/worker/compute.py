"""What runs on the compute thread: swap the task's policy version in, run the task, say what the engine holds.

Confined to the compute thread after construction; torch is imported there, by the engine. Knows nothing of sessions.
Invariant: no sample is generated under a version other than the one its task names.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from daemons.worker.context import TaskContext
from daemons.worker.faults import explain
from digend.engines.protocols import Cancelled, Engine, TaskFault
from digend.telemetry.logs import logger
from digend.wire.broadcasts import Transport
from digend.wire.refs import WeightsRef
from digend.wire.tasks import (
    GenerateResult,
    GenerateTask,
    PrepareTask,
    Receipt,
    ResultBody,
    ScoreResult,
    TaskBody,
    TaskError,
    UpdateTask,
)
from digend.wire.tensors import Array
from digend.wire.workers import PreparedJob, Role

log = logger()

EngineStart = Callable[[], tuple[str, Engine]]
"""Builds the engine, heavy imports and all; gives the device it is on, in words, and the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedVersion:
    """A policy version whose tensors are here, checked, in host memory."""

    weights: WeightsRef
    tensors: Mapping[str, Array]
    num_bound: int
    pull_ns: int = 0
    check_ns: int = 0
    by: Transport = "pull"
    fell_back: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a task left behind; `prepared` is the job's state after it, for the inventory."""

    answer: ResultBody | TaskError
    receipt: Receipt
    prepared: PreparedJob | None


class Compute:
    """The engine and the policy version each of its jobs has loaded."""

    def __init__(self, role: Role, start: EngineStart) -> None:
        self._role = role
        self.device, self._engine = start()
        self._incarnations: dict[str, int] = {}
        self._loaded: dict[str, tuple[int, int]] = {}

    @property
    def engine(self) -> Engine:
        """Only `check_weights` may be called from another thread."""
        return self._engine

    def run(self, task: TaskBody, context: TaskContext, staged: StagedVersion | None) -> Ran:
        """Never raises: whatever the engine does becomes an answer."""
        answer: ResultBody | TaskError
        try:
            context.check()
            if isinstance(task, GenerateTask) and self._role == "generator":
                self._swap(task, context, staged)
            answer = self._engine.run(task, context)
            if isinstance(task, PrepareTask):
                self._incarnations[task.job] = task.incarnation
                self._loaded.pop(task.job, None)
        except BaseException as error:
            answer = explain(error)
            context.withdraw()
            if not isinstance(error, Cancelled | TaskFault):
                log.error("task broke", task=task.kind, job=task.job, traceback=traceback.format_exc(limit=-8))
        return Ran(
            answer=answer,
            receipt=context.stages.receipt(_num_samples(task, answer), context.flops),
            prepared=self._prepared(task.job),
        )

    def end(self, job: str) -> None:
        """Unload a job; unknown jobs are fine."""
        self._incarnations.pop(job, None)
        self._loaded.pop(job, None)
        self._engine.end(job)

    def _swap(self, task: GenerateTask, context: TaskContext, staged: StagedVersion | None) -> None:
        wanted = (task.incarnation, task.version)
        if self._loaded.get(task.job) == wanted:
            return
        if staged is None:
            raise TaskFault("weights", f"policy version {task.version} of {task.job} is not staged here")
        self._loaded.pop(task.job, None)
        with context.stage("swap"):
            self._engine.adopt(staged.weights, staged.tensors)
        self._loaded[task.job] = wanted

    def _prepared(self, job: str) -> PreparedJob | None:
        if job not in self._incarnations:
            return None
        version, global_step, applied = self._engine.applied(job)
        return PreparedJob(
            job=job,
            incarnation=self._incarnations[job],
            version=version,
            global_step=global_step,
            applied=applied,
        )


def _num_samples(task: TaskBody, answer: ResultBody | TaskError) -> int:
    if isinstance(answer, GenerateResult):
        return answer.num_samples
    if isinstance(answer, ScoreResult):
        return len(answer.scores)
    return len(task.items) if isinstance(task, UpdateTask) else 0
