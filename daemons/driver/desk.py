"""Requests of clients that change something: uploads, submits, and what is asked of jobs and nodes. Each gets one
reply, after what it asked for is on disk; a dry run is asked of a copy of the core.

Must not know the socket. Invariant: a refusal leaves nothing behind; an acknowledged submit or cancel
survives a crash.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.core import Core
from broker.events import JobSubmitted
from broker.order import num_before
from broker.rehearsal import changes, look_at, rehearse
from broker.state import State
from daemons.driver.asked import Change, event_of, state_of
from daemons.driver.draft import Draft
from daemons.driver.queries import Answer, Queries, Query
from daemons.driver.submission import Prepared, Refusal, Register
from daemons.driver.uploads import UploadRefused, Uploads
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger
from digend.wire.replies import Changed, ErrorReply, Submitted, Uploaded
from digend.wire.requests import Submit, Upload

Reply = Answer | ErrorReply | Submitted | Changed | Uploaded


@dataclass(frozen=True, slots=True)
class Checked:
    """A submit that was checked beside the loop: ready to be given an id, or refused."""

    peer: bytes
    submit: Submit
    outcome: Prepared | Refusal


class Desk:
    """`no_room()` says in words why nothing new is taken, or "". `send(peer, reply)`."""

    def __init__(
        self,
        core: Core,
        queries: Queries,
        register: Register,
        uploads: Uploads,
        no_room: Callable[[], str],
        send: Callable[[bytes, Reply], None],
    ) -> None:
        self._core = core
        self._queries = queries
        self._register = register
        self._uploads = uploads
        self._no_room = no_room
        self._send = send

    def query(self, peer: bytes, query: Query, now_ns: int) -> None:
        """Answers at once."""
        self._granted(peer, query.request, lambda: self._queries.answer(query, now_ns))

    def upload(self, peer: bytes, upload: Upload) -> None:
        """Takes a chunk; the file is on disk before the last one is acknowledged."""
        self._granted(peer, upload.request, lambda: self._uploaded(upload))

    def submit(self, checked: Checked, draft: Draft, now_ns: int) -> None:
        """Gives a checked job its id; the reply waits for the journal."""
        peer, submit, outcome = checked.peer, checked.submit, checked.outcome
        request = submit.request
        try:
            if isinstance(outcome, Refusal):
                raise outcome
            self._need_room()
            spec, row = self._register.admit(outcome, keep=not submit.dry_run)
        except Refusal as refusal:
            self._send(peer, _error(request, refusal))
            return
        event = JobSubmitted(spec=spec, user=submit.user, priority=submit.priority)
        if submit.dry_run:
            state = self._core.state if row is None else rehearse(self._core, now_ns, event).state
            self._send(peer, self._submitted(request, spec.id, state, row is not None))
            return
        if row is not None:
            draft.jobs.append(row)
            draft.add(event)
            logger().info("job submitted", job=spec.id, user=submit.user)
        draft.after.append(
            lambda: self._send(peer, self._submitted(request, spec.id, self._core.state, row is not None))
        )

    def _submitted(self, request: str, job: str, state: State, created: bool) -> Submitted:
        """A job of an earlier segment is over, and its core is gone."""
        known, view = state.jobs.get(job), self._queries.view(state, job)
        position = num_before(state, known) if known is not None else 0
        return Submitted(
            request=request, job=job, created=created, position=position, state=view.state, reason=view.reason
        )

    def change(self, peer: bytes, asked: Change, draft: Draft, now_ns: int) -> None:
        """What is asked of a job or a node; of a job that is over it changes nothing, which the reply says."""
        try:
            name, event = event_of(asked, self._queries, self._core.state)
            if event is not None:
                self._need_room()
        except Refusal as refusal:
            self._send(peer, _error(asked.request, refusal))
            return
        before = look_at(self._core.state)

        def answer(state: State) -> None:
            what, reason = state_of(asked, name, self._queries, state)
            changed = changes(before, state)
            self._send(peer, Changed(request=asked.request, name=name, state=what, reason=reason, changes=changed))

        if event is None:
            answer(self._core.state)
        elif asked.dry_run:
            answer(rehearse(self._core, now_ns, event).state)
        else:
            draft.add(event)
            draft.after.append(lambda: answer(self._core.state))

    def refuse(self, peer: bytes, request: str, code: ExitCode, message: str) -> None:
        self._send(peer, ErrorReply(request=request, code=int(code), message=message))

    def _granted(self, peer: bytes, request: str, work: Callable[[], Reply]) -> None:
        try:
            self._send(peer, work())
        except Refusal as refusal:
            self._send(peer, _error(request, refusal))

    def _uploaded(self, upload: Upload) -> Uploaded:
        self._need_room()
        try:
            next_offset = self._uploads.add(upload.digest, upload.offset, upload.size, upload.data)
        except UploadRefused as error:
            raise Refusal(ExitCode.USAGE, str(error)) from error
        except OSError as error:
            raise Refusal(ExitCode.DEGRADED, f"the upload cannot be kept: {error}") from error
        complete = next_offset == upload.size and self._uploads.has(upload.digest)
        return Uploaded(request=upload.request, complete=complete, next_offset=next_offset)

    def _need_room(self) -> None:
        reason = self._no_room()
        if reason:
            raise Refusal(ExitCode.DEGRADED, f"not taken: {reason}")


def _error(request: str, refusal: Refusal) -> ErrorReply:
    return ErrorReply(request=request, code=int(refusal.code), message=refusal.message)
