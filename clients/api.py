"""A Python client of the driver: what digenctl is made of, and what a notebook or a sweep uses.

    with Digend("ipc://.digend/driver.sock") as driver:
        job = driver.submit("job.toml", overrides=["training.global_steps=4"]).job
        for record in driver.follow(job):
            print(record.body)
        print(driver.job(job).evaluations)

One request at a time, from one thread. A job is named by its id, by the beginning of one, or by nothing: the newest.
Every method may raise `ClientError` of `digend.net.client` (DriverUnreachable, TimedOut, RequestFailed), and those with
a job NotFound or AmbiguousId of `clients.jobs`.
"""

import getpass
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

from clients.address import DEFAULT_ADDRESS
from clients.jobs import job_id
from digend import __version__
from digend.net.addresses import socket_path
from digend.net.client import Client, DriverUnreachable, TimedOut
from digend.wire import replies, requests
from digend.wire.views import DriverView, JobDetail, JobView, NodeView, QueueView, StatusView, VersionView

if TYPE_CHECKING:
    from digend.config.tracking import TrackingConfig
    from digend.net.security import Security
    from digend.wire.pages import RecordList
    from digend.wire.records import Record
    from digend.wire.story import Transition

T = TypeVar("T")
Change = requests.Cancel | requests.Pause | requests.Resume | requests.SetPriority | requests.Drain | requests.Undrain

POLL_S = 0.5
"""Between two looks at a job that is followed or waited for."""

ABSENCE_S = 30.0
"""How long following a job outlasts a driver that does not answer: long enough for its restart."""

FINAL_STATES = ("completed", "failed", "cancelled")


class Digend:
    """A connection to one driver. Raises BadAddress; does not wait for the driver."""

    def __init__(
        self, address: str = DEFAULT_ADDRESS, timeout_s: float = 5.0, security: "Security | None" = None
    ) -> None:
        """`security`: the key for a driver on another box (`clients.admission.find_security`)."""
        self._client = Client(address, timeout_s, security=security)
        self.address = self._client.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def require_socket(self) -> None:
        """Raises DriverUnreachable at once where no driver ever served the ipc address, or this user may not ask it."""
        path = socket_path(self.address)
        if path is None:
            return
        try:
            found = path.exists()
            allowed = os.access(path, os.W_OK) or not found
        except PermissionError:
            allowed = False
        if not allowed:
            raise DriverUnreachable(f"no driver for you at {self.address}: permission denied; join the driver's group")
        if not found:
            raise DriverUnreachable(f"no driver at {self.address}: there is no such socket")

    def version(self) -> VersionView:
        reply = self._client.request(requests.ClientHello(request=_new(), digend=__version__), replies.VersionReply)
        return reply.version

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs, in the order they were submitted."""
        page = self.newest_jobs()
        found = page.jobs
        while page.earlier:
            page = self.newest_jobs(before=found[0].id)
            found = (*page.jobs, *found)
        return found

    def newest_jobs(self, before: str = "") -> replies.JobList:
        """One page of them: the last, or that before a job."""
        return self._client.request(requests.ListJobs(request=_new(), before=before), replies.JobList)

    def status(self) -> StatusView:
        return self._client.request(requests.GetStatus(request=_new()), replies.StatusReply).status

    def queue(self) -> QueueView:
        return self._client.request(requests.GetQueue(request=_new()), replies.QueueReply).queue

    def nodes(self) -> tuple[NodeView, ...]:
        return self._client.request(requests.ListNodes(request=_new()), replies.NodeList).nodes

    def job_id(self, job: str | None = None, *, begun: bool = False) -> str:
        """The whole id of a job; of the newest, or of the newest that has begun, where it is None."""
        return job_id(self.jobs(), job, begun=begun)

    def job(self, job: str | None = None) -> JobDetail:
        return self._detail(self.job_id(job))

    def cancel(self, job: str, *, after: requests.After = "now", dry_run: bool = False) -> replies.Changed:
        """Cancelling a job that is over changes nothing."""
        whole = self.job_id(job)
        return self._change(requests.Cancel(request=_new(), job=whole, after=after, by=user(), dry_run=dry_run))

    def pause(self, job: str, why: str = "", *, dry_run: bool = False) -> replies.Changed:
        """After the open global step, with a checkpoint."""
        whole = self.job_id(job)
        return self._change(requests.Pause(request=_new(), job=whole, by=user(), why=why, dry_run=dry_run))

    def resume(self, job: str, *, dry_run: bool = False) -> replies.Changed:
        """Back to the queue."""
        return self._change(requests.Resume(request=_new(), job=self.job_id(job), by=user(), dry_run=dry_run))

    def set_priority(self, job: str, priority: int, *, dry_run: bool = False) -> replies.Changed:
        """Higher starts earlier; 0 is usual. A job that runs goes on."""
        whole = self.job_id(job)
        return self._change(requests.SetPriority(request=_new(), job=whole, priority=priority, dry_run=dry_run))

    def drain(self, target: str, why: str = "", *, dry_run: bool = False) -> replies.Changed:
        """No new tasks for a node, or for one worker, by its name or the beginning of one."""
        return self._change(requests.Drain(request=_new(), target=target, by=user(), why=why, dry_run=dry_run))

    def undrain(self, target: str, *, dry_run: bool = False) -> replies.Changed:
        return self._change(requests.Undrain(request=_new(), target=target, by=user(), dry_run=dry_run))

    def _change(self, request: Change) -> replies.Changed:
        return self._client.request(request, replies.Changed)

    def submit(
        self,
        path: str | os.PathLike[str],
        *,
        job: str | None = None,
        overrides: Sequence[str] = (),
        priority: int = 0,
        dry_run: bool = False,
        tracking: "TrackingConfig | None" = None,
    ) -> replies.Submitted:
        """Checks a job file, uploads its prompts, submits it. `overrides` are "key=value", laid over the file;
        `tracking` stands where the file says nothing of it.

        With an id (`job`) it may be repeated safely: the same id and content is the same job. Raises ConfigError.
        """
        from clients.submission import submission, upload

        prepared = submission(path, overrides, tracking)
        for content in prepared.files:
            upload(self._client, content)
        request = replace(prepared.request(_new(), job), user=user(), priority=priority, dry_run=dry_run)
        return self._client.request(request, replies.Submitted)

    def fork(
        self,
        parent: str,
        global_step: int,
        *,
        job: str | None = None,
        overrides: Sequence[str] = (),
        priority: int = 0,
        dry_run: bool = False,
    ) -> replies.Submitted:
        """A new job of the parent's file and `overrides`, that starts from its checkpoint of a global step.

        With an id (`job`) it may be repeated safely, as a submit. Raises ConfigError.
        """
        from clients.forking import fork_request, fork_submission
        from clients.submission import upload

        whole = self.job_id(parent)
        prepared = fork_submission(whole, self.job_file(whole), overrides)
        for content in prepared.files:
            if content:
                upload(self._client, content)
        request = fork_request(prepared, _new(), whole, global_step, job)
        return self._client.request(
            replace(request, user=user(), priority=priority, dry_run=dry_run), replies.Submitted
        )

    def records(self, job: str, since: int = 0) -> "RecordList":
        """Some records of a job, by its whole id, from number `since` on."""
        from digend.wire.pages import GetRecords, RecordList

        return self._client.request(GetRecords(request=_new(), job=job, since=since), RecordList)

    def all_records(self, job: str, since: int = 0) -> "Iterator[Record]":
        """All records of a job there are so far, by its whole id, from number `since` on."""
        while records := self.records(job, since).records:
            yield from records
            since += len(records)

    def story(self, subject: str) -> "Iterator[Transition]":
        """Every transition of a thing, by its whole id (`digend.wire.subjects`), in order."""
        from digend.wire.pages import GetStory, StoryPage

        cursor = None
        while True:
            page = self._client.request(GetStory(request=_new(), subject=subject, cursor=cursor), StoryPage)
            yield from page.transitions
            cursor = page.cursor
            if cursor is None:
                return

    def job_file(self, job: str) -> str:
        """The resolved job file of a job, by its whole id, as TOML."""
        return self._client.request(requests.GetJobFile(request=_new(), job=job), replies.JobFile).toml

    def updates_per_rollout(self, job: str) -> int:
        """Global steps that one rollout of a job feeds, by its whole id."""
        training = tomllib.loads(self.job_file(job)).get("training", {})
        return int(training.get("updates_per_rollout", 1))

    def place(self) -> DriverView:
        """Where the driver's process is and keeps its files."""
        return self._client.request(requests.GetDriver(request=_new()), replies.DriverReply).driver

    def follow(self, job: str | None = None) -> "Iterator[Record]":
        """Records of a job as they come, from the first on, until it is over; outlasts a driver's restart."""
        whole, since = self.job_id(job), 0
        while True:
            reply = _patiently(partial(self.records, whole, since))
            yield from reply.records
            since += len(reply.records)
            if reply.finished and not reply.records:
                return
            if not reply.records:
                time.sleep(POLL_S)

    def wait(self, job: str | None = None, timeout_s: float = float("inf")) -> JobView:
        """The job once it is over; outlasts a driver's restart. Raises TimeoutError."""
        whole = self.job_id(job)
        deadline = time.monotonic() + timeout_s
        while True:
            view = _patiently(partial(self._detail, whole)).job
            if view.state in FINAL_STATES:
                return view
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"job {whole} is not over after {timeout_s:g} s: it is {view.state}")
            time.sleep(min(POLL_S, remaining))

    def _detail(self, job: str) -> JobDetail:
        return self._client.request(requests.ShowJob(request=_new(), job=job), replies.JobReply).job


def user() -> str:
    """Who runs this, for fair order and reasons; empty where the system knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _new() -> str:
    """A request's id."""
    return uuid4().hex


def _patiently(ask: Callable[[], T]) -> T:
    """The answer, asking again for `ABSENCE_S` while the driver is away."""
    deadline = time.monotonic() + ABSENCE_S
    while True:
        try:
            return ask()
        except (DriverUnreachable, TimedOut):
            if time.monotonic() > deadline:
                raise
