"""Tasks as the driver would send them, with only what a test cares about to be said."""

from digend.wire.refs import BlobRef
from digend.wire.tasks import (
    CommitTask,
    EncodeTask,
    GenerateTask,
    GroupRequest,
    PrepareTask,
    Prompt,
    ScoreItem,
    ScoreTask,
    UpdateTask,
)

PROMPT = Prompt(uid="p0", text="a red circle")


def prepare(job: str = "j", incarnation: int = 0) -> PrepareTask:
    return PrepareTask(job=job, incarnation=incarnation, config="{}")


def encode(job: str = "j") -> EncodeTask:
    return EncodeTask(job=job, incarnation=0, prompts=(PROMPT,))


def generate(version: int, ticks: int = 1, job: str = "j", condition: BlobRef | None = None) -> GenerateTask:
    groups = (GroupRequest(prompt="p0", condition=condition, levels=(), samples=()),) if condition else ()
    return GenerateTask(
        job=job,
        incarnation=0,
        version=version,
        purpose="train",
        global_step=0,
        rollout=0,
        micro_batch=0,
        fragment=0,
        groups=groups,
        sigmas=(float(ticks),),
    )


def score(blob: BlobRef, job: str = "j") -> ScoreTask:
    return ScoreTask(
        job=job,
        incarnation=0,
        purpose="train",
        global_step=0,
        rollout=0,
        micro_batch=0,
        fragment=0,
        items=(ScoreItem(prompt=PROMPT, index=0, blob=blob),),
    )


def update(micro_batch: int, z0: int = 1, job: str = "j") -> UpdateTask:
    return UpdateTask(
        job=job,
        incarnation=0,
        version=0,
        global_step=0,
        rollout=0,
        micro_batch=micro_batch,
        sigmas=(1.0, 0.0),
        items=(),
        z0=z0,
    )


def commit(job: str = "j", version: int = 0) -> CommitTask:
    return CommitTask(job=job, incarnation=0, version=version, global_step=version, micro_batches=(), z0=1, z=1)
