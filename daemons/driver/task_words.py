"""Tasks and their results in words, for stories. Pure."""

from broker.commands import StageWeights
from digend.wire.refs import WeightsRef
from digend.wire.subjects import Subject
from digend.wire.tasks import (
    CheckpointTask,
    CommitResult,
    CommitTask,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    PrepareTask,
    Receipt,
    ResetTask,
    ResultBody,
    ScoreResult,
    ScoreTask,
    TaskBody,
    UpdateResult,
    UpdateTask,
)


def told_to_stage(command: StageWeights) -> tuple[str, str]:
    """(what, cause)."""
    version, place = command.weights.version, command.broadcast
    if place is not None and place.rank == 0:
        return f"told to broadcast version {version}", f"to {', '.join(place.members[1:])} (epoch {place.epoch})"
    way = f", by broadcast (epoch {place.epoch})" if place is not None else ""
    return f"told to stage version {version}", f"it is the newest published{way}"


def concerns(task: TaskBody, subject: Subject) -> bool:
    """Whether a task works on a micro-batch or one of its samples, or rolls out or publishes a policy version."""
    if task.job != subject.job:
        return False
    if subject.kind == "policy version":
        return _of_version(task, subject.version)
    if isinstance(task, CommitTask):
        return False  # found by its global step
    if not isinstance(task, GenerateTask | ScoreTask | UpdateTask):
        return False
    if not isinstance(task, UpdateTask) and task.purpose == "evaluate":
        return False
    if (task.rollout, task.micro_batch) != (subject.rollout, subject.micro_batch):
        return False
    return subject.kind == "micro-batch" or isinstance(task, UpdateTask) or has_sample(task, subject)


def has_sample(task: TaskBody, subject: Subject) -> bool:
    wanted = subject.prompt, subject.index
    match task:
        case GenerateTask(groups=groups):
            return any((group.prompt, each.index) == wanted for group in groups for each in group.samples)
        case ScoreTask(items=items):
            return any((item.prompt.uid, item.index) == wanted for item in items)
        case UpdateTask(items=items):
            return any((item.prompt, item.index) == wanted for item in items)
    return False


def _of_version(task: TaskBody, version: int) -> bool:
    match task:
        case GenerateTask(version=used) | CheckpointTask(version=used):
            return used == version
        case CommitTask(version=before):
            return before + 1 == version
        case PrepareTask(version=restored):
            return restored == version
    return False


def name_of(task: TaskBody) -> str:
    """`generate of micro-batch 3/2, fragment 0: 4 samples of p1, p7; version 5`."""
    match task:
        case GenerateTask():
            kind = "evaluate" if task.purpose == "evaluate" else "assist (TAG)" if task.assist else "generate"
            samples = sum(len(group.samples) for group in task.groups)
            return (
                f"{kind} {_place(task)}, fragment {task.fragment}: {samples} samples{_prompts(task)}; {_version(task)}"
            )
        case ScoreTask():
            kind = "score of the evaluation" if task.purpose == "evaluate" else "score"
            return f"{kind} {_place(task)}, fragment {task.fragment}: {len(task.items)} samples"
        case UpdateTask():
            pairs = sum(len(item.timesteps) for item in task.items)
            return f"update {_place(task)}, global step {task.global_step}: {len(task.items)} samples, {pairs} pairs"
        case CommitTask():
            return f"commit of global step {task.global_step}: {task.z} of {task.z0} pairs"
        case CheckpointTask():
            return f"checkpoint at global step {task.global_step}, version {task.version}"
        case EncodeTask():
            return f"encode {len(task.prompts)} prompts"
        case PrepareTask():
            return f"prepare {task.job}" + (f" from {task.checkpoint}" if task.checkpoint else "")
        case ResetTask():
            return "reset of the accumulated gradients"


def why(task: TaskBody, attempt: int) -> str:
    """What a task is given out for."""
    again = f"; made again, {attempt} failed or were lost before" if attempt else ""
    match task:
        case GenerateTask(purpose="evaluate"):
            return f"an evaluation is due{again}"
        case GenerateTask():
            return f"pending, and the worker was free{again}"
        case ScoreTask():
            return f"it waited in SQ{again}"
        case UpdateTask():
            return f"it waited in UQ{again}"
        case CommitTask():
            return f"micro-batches {', '.join(map(str, task.micro_batches)) or 'none'} are applied"
        case CheckpointTask():
            return "the last one" if task.final else "one is due"
        case EncodeTask():
            return "they have no embeddings yet"
        case PrepareTask():
            return f"incarnation {task.incarnation} needs the model there"
        case ResetTask():
            return "they are not what the journal says"


def result_of(result: ResultBody, receipt: Receipt) -> str:
    """`done in 1.24 s: 4 samples, 1 without a reward`."""
    told = f"done in {receipt.total_ns / 1e9:.3g} s"
    match result:
        case GenerateResult():
            return f"{told}: {result.num_samples} samples" + (f", {len(result.scores)} scored" if result.scores else "")
        case ScoreResult():
            failed = sum(score.failure is not None for score in result.scores)
            return f"{told}: {len(result.scores)} samples" + (f", {failed} without a reward" if failed else "")
        case UpdateResult():
            return f"{told}: the gradient of {result.num_pairs} pairs is accumulated"
        case CommitResult(weights=WeightsRef(version=version, blob=blob)):
            return f"{told}: policy version {version} published, weights {blob.digest}"
        case CommitResult(skipped=str(skipped)):
            return f"{told}: no optimizer step, {skipped}"
    return told


def _place(task: GenerateTask | ScoreTask | UpdateTask) -> str:
    if not isinstance(task, UpdateTask) and task.purpose == "evaluate":
        return f"of {task.job}, prompt {task.micro_batch}"
    return f"of micro-batch {task.job}/{task.rollout}/{task.micro_batch}"


def _prompts(task: GenerateTask) -> str:
    return f" of {', '.join(group.prompt for group in task.groups)}"


def _version(task: GenerateTask) -> str:
    return f"version {task.version}, incarnation {task.incarnation}"
