"""The core's commands as messages. Pure translation; `Write` and `WakeAt` are the shell's own business.

Invariant: a command has the fields of the message that carries it out, by name, type and order. So it is packed once,
for the journal, and those bytes are sent.
"""

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
from digend.wire.codec import frame, frame_of
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
Carried = SendTask | RevokeLease | AcknowledgeResult | StageWeights | RetireVersions | Free | End | Ranking
Addressed = Carried | Evict

MESSAGES: dict[type[Carried], type] = {
    SendTask: Assign,
    RevokeLease: Revoke,
    AcknowledgeResult: ResultAck,
    StageWeights: Stage,
    RetireVersions: Retire,
    Free: FreeBlobs,
    End: EndJob,
    AskStore: OpenStore,
    AskJoin: JoinRanks,
    AskLeave: LeaveRanks,
}


def framed(command: Addressed, fields: bytes) -> bytes:
    """The frame of the message that carries out a command; `fields` are `packing.fields_of` it. Raises TooLarge."""
    if isinstance(command, Evict):
        return frame(Refused(reason=f"evicted: {command.reason}", fatal=command.fatal))
    return frame_of(MESSAGES[type(command)].__name__, fields)
