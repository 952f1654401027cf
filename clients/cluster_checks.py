"""What a running cluster says of its own health: versions, clocks, disks, workers, GPUs, checkpoints. Pure.

Must not know how views were got. Each check yields a finding, good ones too, so that what was looked at is seen.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence

from clients.words import age
from digend import __version__
from digend.findings import Finding, room
from digend.wire.devices import SLOWDOWNS
from digend.wire.protocol import PROTOCOL
from digend.wire.views import DriverView, JobDetail, NodeView, StatusView, VersionView

CLOCK_S = 2.0
"""Clocks further apart make times of logs and reports hard to compare; no decision depends on them."""

TOLD_BY_HELLO = ("digend", "python")
WORKS = ("generator", "trainer", "reward")


def check_versions(driver: VersionView, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Of digenctl and driver, and of what changes numbers between workers."""
    if driver.driver == __version__ and driver.protocol == PROTOCOL:
        yield Finding("ok", "driver", f"digend {driver.driver}, protocol {driver.protocol}, as digenctl")
    else:
        theirs = f"digend {driver.driver}, protocol {driver.protocol}"
        yield Finding("error", "driver", f"{theirs}; digenctl {__version__}, {PROTOCOL}: install the same on both")
    for name in dict.fromkeys(name for node in nodes for name in node.versions):
        found: dict[str, list[str]] = {}
        for node in nodes:
            if name in node.versions:
                found.setdefault(node.versions[name], []).append(node.name)
        if len(found) < 2:
            yield Finding("ok", name, f"{next(iter(found))} everywhere")
            continue
        told = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(found.items()))
        yield Finding("warning", name, f"{told}: where these draw or train, numbers differ")


def check_clocks(place: DriverView, here_ns: int, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Of this box, the driver's and the workers' against the driver's."""
    apart = {"this box": (here_ns - place.wall_ns) / 1e9}
    apart |= {node.name: node.clock_ahead_s for node in nodes if node.clock_ahead_s is not None}
    for name, seconds in apart.items():
        if abs(seconds) > CLOCK_S:
            word = "ahead of" if seconds > 0 else "behind"
            yield Finding("warning", f"clock of {name}", f"{age(abs(seconds))} {word} the driver's: set up NTP")
    if all(abs(seconds) <= CLOCK_S for seconds in apart.values()):
        yield Finding("ok", "clocks", f"{len(apart)} within {CLOCK_S:g} s of the driver's")
    set_back = (place.now_ns - place.wall_ns) / 1e9
    if set_back > CLOCK_S:
        yield Finding("warning", "driver's time", f"{age(set_back)} ahead of its box's clock, which was set back")


def check_disks(place: DriverView) -> Iterator[Finding]:
    for name, free in sorted(place.free_bytes.items()):
        yield room(f"disk of {name}", f"on {place.host}", free)


def check_strangers(place: DriverView) -> Iterator[Finding]:
    """Who knocked at the driver's address lately and was not let in: a box with a wrong key, or nobody of ours."""
    for told in place.turned_away:
        yield Finding("warning", "not let in", told)


def check_workers(status: StatusView, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Who is there, who is slow, and what the driver itself names as a problem."""
    for problem in status.problems:
        yield Finding("warning", "problem", problem)
    for role in ("trainer", "recorder"):
        if not any(node.role == role for node in nodes):
            lacks = "no job can run" if role == "trainer" else "nothing is written to runs until one is back"
            yield Finding("warning", role, f"none has joined: {lacks}")
    bad = [node for node in nodes if node.state in ("torpid", "lost")]
    for node in bad:
        heard = f"{node.state}, last heard {age(node.heartbeat_age_s)} ago"
        yield Finding("warning", node.name, f"{heard}: digenctl story {node.name}")
    if nodes and not bad:
        yield Finding("ok", "workers", f"{sum(node.role in WORKS for node in nodes)} joined, none is torpid or lost")


def check_gpus(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """As NVML told the workers, and they the driver."""
    for node in nodes:
        device = node.device_state
        if device is None:
            continue
        slow = [reason for reason in device.throttle if reason in SLOWDOWNS]
        if device.status == "lost":
            yield Finding("error", f"GPU of {node.name}", "lost from the bus: restart the worker's process, or its box")
        elif device.status == "stale":
            yield Finding("warning", f"GPU of {node.name}", f"NVML has not answered for {age(device.age_s)}")
        elif slow:
            yield Finding("warning", f"GPU of {node.name}", f"{node.health}: look at cooling and power")
        else:
            yield Finding("ok", f"GPU of {node.name}", node.health or device.device)
    if not any(node.device_state for node in nodes):
        yield Finding("ok", "GPUs", "no worker tells of one")


def check_job(detail: JobDetail | None, job_file: str) -> Iterator[Finding]:
    """Whether the running job's newest checkpoint is as new as it should be."""
    if detail is None:
        return
    job = detail.job
    if job.state == "held":
        yield Finding("error", f"job {job.id}", f"held: {job.reason}")
    every = int(tomllib.loads(job_file).get("checkpoint", {}).get("every", 0))
    found = re.search(r"step-(\d+)$", detail.checkpoint or "")
    done = int(found[1]) if found else 0
    if every and job.global_step - done > 2 * every:
        late = f"newest at global step {done}, the job is at {job.global_step}, one is due every {every}"
        yield Finding("warning", f"checkpoints of {job.id}", late)
    elif every:
        yield Finding("ok", f"checkpoints of {job.id}", f"newest at global step {done} of {job.global_step}")
