"""Questions of clients that change nothing: answered from the core's views, and from the archive for older jobs.

Must not know sockets. Invariant: an answer names a job that exists, or is a refusal with the nearest id.
"""

import platform
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from broker import views
from broker.core import Core
from broker.state import State
from daemons.driver.archive import Archive
from daemons.driver.chronicle import Chronicle
from daemons.driver.place import Place
from daemons.driver.sessions import Sessions
from daemons.driver.submission import Refusal
from daemons.driver.summaries import Summaries
from digend import __version__
from digend.exitcodes import ExitCode
from digend.telemetry.stages import FINAL_STATES
from digend.wire.pages import GetRecords, GetStory, RecordList, StoryPage
from digend.wire.protocol import MAX_MESSAGE_BYTES, PROTOCOL
from digend.wire.replies import DriverReply, JobFile, JobList, JobReply, NodeList, QueueReply, StatusReply, VersionReply
from digend.wire.requests import ClientHello, GetDriver, GetJobFile, GetQueue, GetStatus, ListJobs, ListNodes, ShowJob
from digend.wire.story import StoryCursor
from digend.wire.subjects import parsed
from digend.wire.views import JobDetail, JobView, StatusView, VersionView

Query = (
    ClientHello | ListJobs | GetStatus | GetQueue | ListNodes | ShowJob | GetRecords | GetStory | GetJobFile | GetDriver
)
Answer = (
    VersionReply
    | JobList
    | StatusReply
    | QueueReply
    | NodeList
    | JobReply
    | RecordList
    | StoryPage
    | JobFile
    | DriverReply
)


LISTED_JOBS = 200
LISTED_RECORDS = 200
_ROOM_BYTES = MAX_MESSAGE_BYTES - 16 * 1024


class Queries:
    """`problems` says what is wrong beside what the core knows (a full disk), `held` why nothing is decided now."""

    def __init__(
        self,
        core: Core,
        summaries: Summaries,
        archive: Archive,
        started_ns: int,
        problems: Callable[[], tuple[str, ...]],
        place: Place,
        sessions: Sessions,
        turned_away: Callable[[], tuple[str, ...]] = lambda: (),
        held: Callable[[], str] = lambda: "",
    ) -> None:
        self._core = core
        self._summaries = summaries
        self._archive = archive
        self._earlier = archive.finished()
        self._started_ns = started_ns
        self._problems = problems
        self._place = place
        self._sessions = sessions
        self._turned_away = turned_away
        self._held = held
        self._chronicle = Chronicle(archive)

    def answer(self, query: Query, now_ns: int) -> Answer:
        """Raises Refusal (NOT_FOUND)."""
        match query:
            case ClientHello(request=request):
                return VersionReply(request=request, version=version())
            case ListJobs(request=request, before=before):
                return self._listed(request, before)
            case GetStatus(request=request):
                return StatusReply(request=request, status=self.status(now_ns))
            case GetQueue(request=request):
                return QueueReply(request=request, queue=views.queue_view(self._core.state, now_ns))
            case ListNodes(request=request):
                return NodeList(request=request, nodes=self._sessions.seen(views.node_views(self._core.state, now_ns)))
            case ShowJob(request=request, job=job):
                return JobReply(request=request, job=self.detail(job))
            case GetRecords(request=request, job=job, since=since):
                return self._records(request, job, since)
            case GetStory(request=request, subject=subject, cursor=cursor):
                return self._story(request, subject, cursor)
            case GetJobFile(request=request, job=job):
                self.job(job)
                return JobFile(request=request, toml=self._archive.job_file(job) or "")
            case GetDriver(request=request):
                place = replace(self._place.view(now_ns), turned_away=self._turned_away())
                return DriverReply(request=request, driver=place)

    def status(self, now_ns: int) -> StatusView:
        """How things are, the driver's own problems first."""
        status = views.status_view(self._core.state, now_ns, self._started_ns)
        nodes = self._sessions.seen(status.nodes)
        return replace(
            status,
            problems=self._problems() + status.problems,
            job=self._waiting(status.job) if status.job else None,
            jobs=tuple(map(self._waiting, status.jobs)),
            nodes=nodes,
            held_bytes=sum(node.held_bytes for node in nodes),
            spooled_bytes=sum(node.spooled_bytes for node in nodes),
        )

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs, oldest first."""
        own = map(self._waiting, views.job_views(self._core.state))
        return (*(each.job for each in self._earlier.values()), *own)

    def _waiting(self, job: JobView) -> JobView:
        """With what holds the driver before its own reason, where it is not over."""
        held = self._held()
        if not held or job.state in FINAL_STATES:
            return job
        return replace(job, reason="; ".join(filter(None, (f"waits: {held}", job.reason))))

    def _listed(self, request: str, before: str) -> JobList:
        """A page of jobs. Raises Refusal (NOT_FOUND)."""
        found = self.jobs()
        if before:
            names = [job.id for job in found]
            if before not in names:
                raise self._unknown(before)
            found = found[: names.index(before)]
        page = found[-LISTED_JOBS:]
        return JobList(request=request, jobs=page, earlier=len(found) - len(page))

    def job(self, job: str) -> JobView:
        """Raises Refusal (NOT_FOUND)."""
        found = next((each for each in self.jobs() if each.id == job), None)
        if found is None:
            raise self._unknown(job)
        return found

    def view(self, state: State, job: str) -> JobView:
        """A job in the core's state or in a copy of it, else as the archive has it. Raises Refusal (NOT_FOUND)."""
        known = state.jobs.get(job)
        return views.job_view(state, known) if known is not None else self.job(job)

    def detail(self, job: str) -> JobDetail:
        """Raises Refusal (NOT_FOUND)."""
        found = self._earlier.get(job) or self._summaries.detail(job)
        if found is None:
            raise self._unknown(job)
        return replace(found, job=self._waiting(found.job))

    def _records(self, request: str, job: str, since: int) -> RecordList:
        over = self.job(job).state in FINAL_STATES
        stored = self._archive.records(job, since, LISTED_RECORDS, _ROOM_BYTES)
        records = tuple(each.record for each in stored)
        more = bool(self._archive.records(job, since + len(records), 1, _ROOM_BYTES))
        return RecordList(request=request, records=records, finished=over and not more)

    def _story(self, request: str, text: str, cursor: StoryCursor | None) -> StoryPage:
        try:
            subject = parsed(text)
            job = self.job(subject.job) if subject.job else None
            transitions, following = self._chronicle.page(subject, job, cursor)
        except ValueError as error:
            raise Refusal(ExitCode.USAGE, str(error)) from error
        return StoryPage(request=request, transitions=transitions, cursor=following)

    def _unknown(self, job: str) -> Refusal:
        near = get_close_matches(job, [each.id for each in self.jobs()], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return Refusal(ExitCode.NOT_FOUND, f"no job {job}{hint}")


def version() -> VersionView:
    return VersionView(driver=__version__, protocol=PROTOCOL, python=platform.python_version())
