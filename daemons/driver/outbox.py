"""The core's commands as messages. Pure translation; `Write` and `WakeAt` are the shell's own business."""

from broker.commands import (
    AcknowledgeResult,
    AskJoin,
    AskLeave,
    AskStore,
    End,
    Evict,
    Free,
    RetireVersions,
    RevokeLease,
    SendTask,
    StageWeights,
)
from digend.wire.protocol import Refused
from digend.wire.workers import (
    Assign,
    EndJob,
    FreeBlobs,
    JoinRanks,
    LeaveRanks,
    OpenStore,
    ResultAck,
    Retire,
    Revoke,
    Stage,
)

Ranking = AskStore | AskJoin | AskLeave
Addressed = SendTask | RevokeLease | AcknowledgeResult | StageWeights | RetireVersions | Free | End | Ranking | Evict
Outgoing = (
    Assign | Revoke | ResultAck | Stage | Retire | FreeBlobs | EndJob | OpenStore | JoinRanks | LeaveRanks | Refused
)


def message(command: Addressed) -> Outgoing:
    """The message that carries out an addressed command."""
    match command:
        case SendTask(session=session, lease=lease, attempt=attempt, lease_s=lease_s, task=task):
            return Assign(session=session, lease=lease, attempt=attempt, lease_s=lease_s, task=task)
        case RevokeLease(session=session, lease=lease, reason=reason):
            return Revoke(session=session, lease=lease, reason=reason)
        case AcknowledgeResult(session=session, lease=lease):
            return ResultAck(session=session, lease=lease)
        case StageWeights(session=session, weights=weights, workers=workers):
            return Stage(session=session, weights=weights, workers=workers)
        case RetireVersions(session=session, job=job, incarnation=incarnation, oldest_version=oldest):
            return Retire(session=session, job=job, incarnation=incarnation, oldest_version=oldest)
        case Free(session=session, blobs=blobs):
            return FreeBlobs(session=session, blobs=blobs)
        case End(session=session, job=job):
            return EndJob(session=session, job=job)
        case AskStore(session=session, job=job, epoch=epoch):
            return OpenStore(session=session, job=job, epoch=epoch)
        case AskJoin(session=session, job=job, ranks=ranks):
            return JoinRanks(session=session, job=job, ranks=ranks)
        case AskLeave(session=session, job=job, epoch=epoch, reason=reason):
            return LeaveRanks(session=session, job=job, epoch=epoch, reason=reason)
        case Evict(reason=reason, fatal=fatal):
            return Refused(reason=f"evicted: {reason}", fatal=fatal)
