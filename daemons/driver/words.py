"""The driver's state in one line, for `systemctl status`, and how a worker is spoken with. Pure."""

from digend.net.addresses import KEY_MARK, is_local
from digend.wire.views import CLEAR_DATA, StatusView
from digend.wire.workers import Hello


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


def in_the_clear(hello: Hello) -> bool:
    """Whether the worker serves tensors to other machines without a key."""
    return bool(hello.data) and KEY_MARK not in hello.data and not is_local(hello.data)


def traffic(hello: Hello, encrypted: bool) -> str:
    """`encrypted`; `clear data` where tensors go over a trusted fabric; `local` where something goes in the clear and
    stays on one machine.

    `encrypted` is what messages are; the address of a blob server names its key where it has one.
    """
    if encrypted and in_the_clear(hello):
        return CLEAR_DATA
    return "encrypted" if encrypted and (not hello.data or KEY_MARK in hello.data) else "local"
