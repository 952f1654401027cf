"""Who may send what. A socket decodes only the messages that its peers may send (docs/protocol.md)."""

from collections.abc import Iterable, Mapping

from digend.wire import messages as m
from digend.wire import pulls

FROM_WORKER: frozenset[type] = frozenset(
    {
        m.Hello,
        m.Heartbeat,
        m.TaskDone,
        m.TaskFailed,
        m.Staged,
        m.StageFailed,
        m.RecordsWritten,
        m.Goodbye,
    }
)
TO_WORKER: frozenset[type] = frozenset(
    {
        m.Welcome,
        m.Refused,
        m.HeartbeatAck,
        m.Assign,
        m.Revoke,
        m.ResultAck,
        m.Stage,
        m.Retire,
        m.FreeBlobs,
        m.EndJob,
        m.Records,
    }
)
FROM_CLIENT: frozenset[type] = frozenset(
    {
        m.ClientHello,
        m.Upload,
        m.Submit,
        m.ListJobs,
        m.GetStatus,
        m.GetQueue,
        m.ListNodes,
        m.ShowJob,
        m.Cancel,
        m.Pause,
        m.Resume,
        m.SetPriority,
        m.Drain,
        m.Undrain,
        m.GetRecords,
        m.GetStory,
        m.GetJobFile,
        m.GetDriver,
    }
)
TO_CLIENT: frozenset[type] = frozenset(
    {
        m.VersionReply,
        m.Uploaded,
        m.Submitted,
        m.JobList,
        m.StatusReply,
        m.QueueReply,
        m.NodeList,
        m.JobReply,
        m.Changed,
        m.RecordList,
        m.StoryPage,
        m.JobFile,
        m.DriverReply,
        m.ErrorReply,
        m.Refused,
    }
)
TO_DRIVER = FROM_WORKER | FROM_CLIENT
ANYBODY: frozenset[type] = frozenset({m.ClientHello, m.ListNodes})
"""What every role may ask: `digend up` of any box wants to know whether its workers have joined."""
_ENGINE: frozenset[type] = (FROM_WORKER - {m.RecordsWritten}) | ANYBODY
FROM_ROLE: Mapping[str, frozenset[type]] = {
    "driver": ANYBODY,
    "generator": _ENGINE,
    "trainer": _ENGINE,
    "reward": _ENGINE,
    "recorder": frozenset({m.Hello, m.Heartbeat, m.RecordsWritten, m.Goodbye}) | ANYBODY,
    "client": FROM_CLIENT,
}
"""What a key with a role may be used to say to the driver."""
OWNERS = frozenset({"generator", "trainer", "reward"})
"""Roles that have blobs."""
PULLERS = OWNERS | {"recorder"}
"""Roles that may pull them."""
TO_OWNER: frozenset[type] = frozenset({pulls.Pull})
FROM_OWNER: frozenset[type] = frozenset({pulls.Pulled, pulls.PullRefused})


def from_roles(roles: Iterable[str]) -> frozenset[type]:
    """What may be said to the driver with a key of these roles."""
    return frozenset().union(*(FROM_ROLE[role] for role in roles))
