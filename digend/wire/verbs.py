"""Who may send what. A socket decodes only the messages that its peers may send (docs/protocol.md)."""

from collections.abc import Iterable, Mapping

from digend.wire import pages, protocol, pulls, replies, requests, workers

FROM_WORKER: frozenset[type] = frozenset(
    {
        workers.Hello,
        workers.Heartbeat,
        workers.TaskDone,
        workers.TaskFailed,
        workers.Staged,
        workers.StageFailed,
        workers.StoreOpened,
        workers.RankJoined,
        workers.RankFailed,
        workers.RecordsWritten,
        workers.Goodbye,
    }
)
TO_WORKER: frozenset[type] = frozenset(
    {
        workers.Welcome,
        protocol.Refused,
        workers.HeartbeatAck,
        workers.Assign,
        workers.Revoke,
        workers.ResultAck,
        workers.Stage,
        workers.Retire,
        workers.FreeBlobs,
        workers.EndJob,
        workers.OpenStore,
        workers.JoinRanks,
        workers.LeaveRanks,
        workers.Records,
    }
)
FROM_CLIENT: frozenset[type] = frozenset(
    {
        requests.ClientHello,
        requests.Upload,
        requests.Submit,
        requests.ListJobs,
        requests.GetStatus,
        requests.GetQueue,
        requests.ListNodes,
        requests.ShowJob,
        requests.Cancel,
        requests.Pause,
        requests.Resume,
        requests.SetPriority,
        requests.Drain,
        requests.Undrain,
        pages.GetRecords,
        pages.GetStory,
        requests.GetJobFile,
        requests.GetDriver,
    }
)
TO_CLIENT: frozenset[type] = frozenset(
    {
        replies.VersionReply,
        replies.Uploaded,
        replies.Submitted,
        replies.JobList,
        replies.StatusReply,
        replies.QueueReply,
        replies.NodeList,
        replies.JobReply,
        replies.Changed,
        pages.RecordList,
        pages.StoryPage,
        replies.JobFile,
        replies.DriverReply,
        replies.ErrorReply,
        protocol.Refused,
    }
)
TO_DRIVER = FROM_WORKER | FROM_CLIENT
ANYBODY: frozenset[type] = frozenset({requests.ClientHello, requests.ListNodes})
"""What every role may ask: `digend up` of any box wants to know whether its workers have joined."""
_RANKS: frozenset[type] = frozenset({workers.StoreOpened, workers.RankJoined, workers.RankFailed})
_ENGINE: frozenset[type] = (FROM_WORKER - {workers.RecordsWritten} - _RANKS) | ANYBODY
FROM_ROLE: Mapping[str, frozenset[type]] = {
    "driver": ANYBODY,
    "generator": _ENGINE,
    "trainer": _ENGINE | _RANKS,
    "reward": _ENGINE,
    "recorder": frozenset({workers.Hello, workers.Heartbeat, workers.RecordsWritten, workers.Goodbye}) | ANYBODY,
    "client": FROM_CLIENT,
}
"""What a key with a role may be used to say to the driver."""
OWNERS = frozenset({"generator", "trainer", "reward"})
"""Roles that have blobs."""
PULLERS = OWNERS | {"recorder"}
"""Roles that may pull them."""
TO_OWNER: frozenset[type] = frozenset({pulls.GetManifest, pulls.Pull, pulls.GetPieces})
FROM_OWNER: frozenset[type] = frozenset({pulls.Pulled, pulls.Pieces, pulls.PullRefused})


def from_roles(roles: Iterable[str]) -> frozenset[type]:
    """What may be said to the driver with a key of these roles."""
    return frozenset().union(*(FROM_ROLE[role] for role in roles))
