"""A driver of canned answers on a real socket: what digenctl sees, without a decision core."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from digend.net.server import ControlServer
from digend.wire import pages, replies, requests
from digend.wire.protocol import PROTOCOL
from digend.wire.records import Record
from digend.wire.story import Transition
from digend.wire.views import (
    Change,
    DriverView,
    JobDetail,
    JobView,
    NodeView,
    QueueItem,
    QueueView,
    StatusView,
    VersionView,
)

ELSEWHERE = DriverView(
    node="box",
    host="elsewhere",
    pid=77,
    now_ns=1,
    wall_ns=1,
    journal="/nowhere/state/driver.sqlite",
    state="/nowhere/state",
    runs="/nowhere/runs",
    free_bytes={"state": 100 * 2**30},
    by_systemd=False,
)


@dataclass
class Canned:
    """What the driver knows. `jobs` is replaced by tests to change the world."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    nodes: tuple[NodeView, ...] = ()
    uq_bytes: int = 0
    items: tuple[QueueItem, ...] = ()
    records: dict[str, list[Record]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    stories: dict[str, tuple[Transition, ...]] = field(default_factory=dict)
    job_files: dict[str, str] = field(default_factory=dict)
    place: DriverView = ELSEWHERE
    uploads: dict[str, bytes] = field(default_factory=dict)
    submits: list[requests.Submit] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    """Requests that change something."""
    changes: tuple[Change, ...] = ()
    refusal: tuple[int, str] | None = None
    draining_polls: int = 0
    silent: bool = False
    """Takes requests and never replies."""
    lasting_polls: int = 0
    """Number of ShowJob requests after which a job that runs is completed; 0 = never."""
    num_polls: int = 0
    now_ns: int = 0
    page: int = 3
    """Records, and jobs, in one reply."""


class FakeDriver:
    """Serves on its own thread while it is entered; `address` is absolute."""

    def __init__(self, folder: Path, canned: Canned) -> None:
        self.canned = canned
        self.address = f"ipc://{folder}/driver.sock"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._stop: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()
        self._thread.join(60)

    async def _serve(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        server = await ControlServer.bind(self.address)
        reader = asyncio.create_task(self._answer(server))
        self._ready.set()
        await stopped.wait()
        reader.cancel()
        server.close()

    async def _answer(self, server: ControlServer) -> None:
        async for peer, message in server.messages():
            if not self.canned.silent:
                server.send(peer, reply_to(message, self.canned))


def reply_to(message: object, canned: Canned) -> object:
    """The reply to one request."""
    match message:
        case requests.ClientHello(request=request):
            version = VersionView(driver="0.0.0", protocol=PROTOCOL, python="3.11")
            return replies.VersionReply(request=request, version=version)
        case requests.ListJobs(request=request, before=before):
            names = list(canned.jobs)
            found = names[: names.index(before)] if before else names
            page = found[-canned.page :]
            jobs = tuple(canned.jobs[name] for name in page)
            return replies.JobList(request=request, jobs=jobs, earlier=len(found) - len(page))
        case requests.GetStatus(request=request):
            return replies.StatusReply(request=request, status=_status(canned))
        case requests.GetQueue(request=request):
            return replies.QueueReply(request=request, queue=QueueView(items=canned.items))
        case requests.ListNodes(request=request):
            return replies.NodeList(request=request, nodes=_nodes(canned))
        case requests.ShowJob(request=request, job=job):
            return replies.JobReply(request=request, job=_detail(canned, job))
        case (
            requests.Cancel()
            | requests.Pause()
            | requests.Resume()
            | requests.SetPriority()
            | requests.Drain()
            | requests.Undrain()
        ):
            return _change(message, canned)
        case pages.GetRecords(request=request, job=job, since=since):
            records = tuple(canned.records.get(job, ())[since : since + canned.page])
            return pages.RecordList(request=request, records=records, finished=canned.jobs[job].state != "running")
        case pages.GetStory(request=request, subject=subject):
            return pages.StoryPage(request=request, transitions=canned.stories.get(subject, ()), cursor=None)
        case requests.GetJobFile(request=request, job=job):
            return replies.JobFile(request=request, toml=canned.job_files.get(job, ""))
        case requests.GetDriver(request=request):
            return replies.DriverReply(request=request, driver=canned.place)
        case requests.Upload():
            return _take(message, canned)
        case requests.Submit():
            return _submit(message, canned)
    raise AssertionError(message)


Asked = requests.Cancel | requests.Pause | requests.Resume | requests.SetPriority | requests.Drain | requests.Undrain


def _change(asked: Asked, canned: Canned) -> replies.Changed | replies.ErrorReply:
    canned.asked.append(asked)
    if canned.refusal is not None:
        return replies.ErrorReply(request=asked.request, code=canned.refusal[0], message=canned.refusal[1])
    if isinstance(asked, requests.Drain | requests.Undrain):
        state, reason = ("draining", "by ann: new kernel") if isinstance(asked, requests.Drain) else ("", "")
        return replies.Changed(
            request=asked.request, name=asked.target, state=state, reason=reason, changes=canned.changes
        )
    if isinstance(asked, requests.Cancel) and not asked.dry_run:
        canned.jobs[asked.job] = replace(canned.jobs[asked.job], state="cancelled")
    state = canned.jobs[asked.job].state
    return replies.Changed(request=asked.request, name=asked.job, state=state, reason="", changes=canned.changes)


def _nodes(canned: Canned) -> tuple[NodeView, ...]:
    """The first is draining for `draining_polls` looks after a drain."""
    if not any(isinstance(asked, requests.Drain) for asked in canned.asked):
        return canned.nodes
    canned.num_polls += 1
    state = "draining" if canned.num_polls <= canned.draining_polls else "drained"
    return (replace(canned.nodes[0], state=state), *canned.nodes[1:])


def _status(canned: Canned) -> StatusView:
    running = next((job for job in canned.jobs.values() if job.state == "running"), None)
    return StatusView(
        epoch=3,
        uptime_s=754.0,
        nodes=canned.nodes,
        sq_depth=0,
        sq_oldest_s=None,
        uq_depth=2,
        uq_oldest_s=1.25,
        job=running,
        queued=1,
        bubble_share=0.042 if running else None,
        problems=canned.problems,
        now_ns=canned.now_ns,
        jobs=() if running is None else (running,),
        uq_bytes=canned.uq_bytes,
        held_bytes=sum(node.held_bytes for node in canned.nodes),
        spooled_bytes=sum(node.spooled_bytes for node in canned.nodes),
    )


def _detail(canned: Canned, job: str) -> JobDetail:
    canned.num_polls += 1
    if canned.lasting_polls and canned.num_polls >= canned.lasting_polls:
        canned.jobs[job] = replace(canned.jobs[job], state="completed")
    return JobDetail(
        job=canned.jobs[job],
        seconds=131.0,
        evaluations=(),
        last_step={"reward/mean": 0.7, "kl": float("nan")},
        stage_seconds={"box/generator/0": {"generate": 60.0, "decode": 3.5}, "box/trainer/0": {"update": 50.0}},
        counters={"samples": 3168, "warnings": 0},
        checkpoint="/runs/a/checkpoints/5",
        pipeline=None,
        num_records=len(canned.records.get(job, ())),
    )


def _take(upload: requests.Upload, canned: Canned) -> replies.Uploaded:
    have = canned.uploads.get(upload.digest, b"")
    if len(have) == upload.offset:
        have += upload.data
        canned.uploads[upload.digest] = have
    return replies.Uploaded(request=upload.request, complete=len(have) == upload.size, next_offset=len(have))


def _submit(submit: requests.Submit, canned: Canned) -> replies.Submitted | replies.ErrorReply:
    job = submit.job or f"job-{len(canned.submits) + 1:03d}"
    before = next((each for each in canned.submits if each.job == submit.job and submit.job), None)
    if before is not None and before.config != submit.config:
        return replies.ErrorReply(request=submit.request, code=2, message=f"job {job} exists with other content")
    canned.submits.append(submit)
    if submit.dry_run:
        reason = "waits for box: x runs there"
        return replies.Submitted(
            request=submit.request, job=job, created=True, position=1, state="queued", reason=reason
        )
    canned.jobs.setdefault(job, job_view(job, "running"))
    return replies.Submitted(request=submit.request, job=job, created=before is None, position=0)


def job_view(job: str, state: str, *, submitted_ns: int = 1, reason: str = "") -> JobView:
    """A job some way through."""
    return JobView(
        id=job,
        name=job,
        state=state,
        reason=reason,
        global_step=7,
        num_global_steps=22,
        policy_version=7,
        incarnation=0,
        reward=0.7123,
        submitted_ns=submitted_ns,
        started_ns=submitted_ns,
        finished_ns=None if state == "running" else submitted_ns + 131_000_000_000,
    )


def node_view(name: str, state: str = "busy") -> NodeView:
    """A worker named node/role/slot."""
    node, role, _ = name.split("/")
    return NodeView(
        name=name,
        role=role,
        node=node,
        state=state,
        doing="generates micro-batch 3",
        device="cpu",
        pid=4242,
        session="s1",
        heartbeat_age_s=0.4,
        tasks_done=12,
        versions={"torch": "2.9"},
        reason="" if state == "busy" else "waits for rewards",
    )
