"""What an exception of the engine means to the driver. Knows nothing of torch: its errors are told by name."""

from digend.engines.protocols import Cancelled, TaskFault
from digend.printable import printable
from digend.wire.tasks import TaskError

MAX_MESSAGE_CHARS = 600


def explain(error: BaseException) -> TaskError:
    """The task error of an exception: `TaskFault` carries its own, everything unknown is internal and worth a retry."""
    if isinstance(error, TaskFault):
        return error.error
    if isinstance(error, Cancelled):
        return TaskError(reason="cancelled", message=str(error) or "the lease was revoked", retry=True)
    text = printable(f"{type(error).__name__}: {error}", keep="\n")[:MAX_MESSAGE_CHARS]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return TaskError(reason="out_of_memory", message=text, retry=True)
    return TaskError(reason="internal", message=text, retry=True)
