"""Who may send what. A socket decodes only the messages that its peers may send (docs/protocol.md)."""

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
        m.Cancelled,
        m.RecordList,
        m.StoryPage,
        m.JobFile,
        m.DriverReply,
        m.ErrorReply,
        m.Refused,
    }
)
TO_DRIVER = FROM_WORKER | FROM_CLIENT
TO_OWNER: frozenset[type] = frozenset({pulls.Pull})
FROM_OWNER: frozenset[type] = frozenset({pulls.Pulled, pulls.PullRefused})
