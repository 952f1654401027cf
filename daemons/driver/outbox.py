"""The core's commands as messages. Pure translation; `Write` and `WakeAt` are the shell's own business."""

from broker.commands import (
    AcknowledgeResult,
    End,
    Evict,
    Free,
    RetireVersions,
    RevokeLease,
    SendTask,
    StageWeights,
)
from digend.wire.protocol import Refused
from digend.wire.workers import Assign, EndJob, FreeBlobs, ResultAck, Retire, Revoke, Stage

Addressed = SendTask | RevokeLease | AcknowledgeResult | StageWeights | RetireVersions | Free | End | Evict
Outgoing = Assign | Revoke | ResultAck | Stage | Retire | FreeBlobs | EndJob | Refused


def message(command: Addressed) -> Outgoing:
    """The message that carries out an addressed command."""
    match command:
        case SendTask(session=session, lease=lease, attempt=attempt, lease_s=lease_s, task=task):
            return Assign(session=session, lease=lease, attempt=attempt, lease_s=lease_s, task=task)
        case RevokeLease(session=session, lease=lease, reason=reason):
            return Revoke(session=session, lease=lease, reason=reason)
        case AcknowledgeResult(session=session, lease=lease):
            return ResultAck(session=session, lease=lease)
        case StageWeights(session=session, weights=weights):
            return Stage(session=session, weights=weights)
        case RetireVersions(session=session, job=job, incarnation=incarnation, oldest_version=oldest):
            return Retire(session=session, job=job, incarnation=incarnation, oldest_version=oldest)
        case Free(session=session, blobs=blobs):
            return FreeBlobs(session=session, blobs=blobs)
        case End(session=session, job=job):
            return EndJob(session=session, job=job)
        case Evict(reason=reason, fatal=fatal):
            return Refused(reason=f"evicted: {reason}", fatal=fatal)
