"""The compute of a reward process without torch: it scores, and nothing else.

For a dedicated reward under an interpreter of its own, where digend is installed for the wire only. Rewards of models
import what they need themselves. Must not import torch. Invariant: whatever is not a score is refused with the reason.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from digend.config.job import JobConfig
from digend.engines import scoring
from digend.engines.protocols import Context, TaskFault
from digend.wire.refs import WeightsRef
from digend.wire.tasks import PrepareResult, PrepareTask, ResultBody, ScoreTask, TaskBody
from digend.wire.tensors import Array


class ScoringEngine:
    """The Engine of a reward process. `device` is handed to the rewards, as text."""

    def __init__(self, device: str, reward_paths: Sequence[str | Path] = ()) -> None:
        self._device = device
        self._reward_paths = [Path(folder) for folder in reward_paths]
        self._job = ""
        self._batch_size = 0
        self._scorers: list[scoring.Scorer] = []

    def run(self, task: TaskBody, context: Context) -> ResultBody:
        """Raises TaskFault for what the core knows how to handle, Cancelled for a revoked lease."""
        if isinstance(task, PrepareTask):
            return self._prepare(task, context)
        if not isinstance(task, ScoreTask):
            raise TaskFault("internal", f"a reward process without torch does not {task.kind}")
        if task.job != self._job:
            raise TaskFault("internal", f"job {task.job} is not prepared here", retry=True)
        return scoring.score(self._scorers, task, self._batch_size, context)

    def check_weights(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> int:
        raise TaskFault("weights", "a reward process has no weights")

    def adopt(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> None:
        """It has no weights."""

    def end(self, job: str) -> None:
        if job == self._job:
            self._job, self._scorers = "", []

    def applied(self, job: str) -> tuple[int, int, tuple[int, ...]]:
        return -1, -1, ()

    def _prepare(self, task: PrepareTask, context: Context) -> PrepareResult:
        self.end(self._job)
        try:
            config = JobConfig.model_validate_json(task.config)
        except ValidationError as error:
            raise TaskFault("config", f"the job file is refused: {error}") from error
        if config.schedule.decode == "reward":
            raise TaskFault("config", 'schedule.decode = "reward": this reward process has no torch to decode with')
        with context.stage("load"):
            self._scorers = scoring.build_scorers(config, self._device, self._reward_paths)
        self._job, self._batch_size = task.job, config.sampling.rollout_batch
        return PrepareResult(base_digest="", num_parameters=0, num_trainable=0, sigmas=(), eval_sigmas=())
