"""The driver's state in one line, for `systemctl status`. Pure."""

from digend.wire.views import StatusView


def in_words(status: StatusView) -> str:
    """`shapes-001 running, global step 3 of 20; 2 queued; 4 workers; disk nearly full`."""
    parts = ["no job"]
    if job := status.job:
        parts = [f"{job.id} {job.state}, global step {job.global_step} of {job.num_global_steps}"]
    if status.queued:
        parts.append(f"{status.queued} queued")
    present = sum(node.state != "lost" and node.role != "recorder" for node in status.nodes)
    parts.append(f"{present} {'worker' if present == 1 else 'workers'}")
    return "; ".join([*parts, *status.problems])
