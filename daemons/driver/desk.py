"""Requests of clients that change something: upload, submit, cancel. Each gets one reply, after what it asked for is
on disk.

Must not know the socket. Invariant: a refusal leaves nothing behind; an acknowledged submit or cancel
survives a crash.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.events import CancelRequested, JobSubmitted
from daemons.driver.draft import Draft
from daemons.driver.queries import Answer, Queries, Query
from daemons.driver.submission import Prepared, Refusal, Register
from daemons.driver.uploads import UploadRefused, Uploads
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger
from digend.telemetry.stages import FINAL_STATES
from digend.wire.messages import Cancel, Cancelled, ErrorReply, Submitted, Upload, Uploaded

Reply = Answer | ErrorReply | Submitted | Cancelled | Uploaded


@dataclass(frozen=True, slots=True)
class Checked:
    """A submit that was checked beside the loop: ready to be given an id, or refused."""

    peer: bytes
    request: str
    outcome: Prepared | Refusal


class Desk:
    """`no_room()` says in words why nothing new is taken, or "". `send(peer, reply)`."""

    def __init__(
        self,
        queries: Queries,
        register: Register,
        uploads: Uploads,
        no_room: Callable[[], str],
        send: Callable[[bytes, Reply], None],
    ) -> None:
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

    def submit(self, checked: Checked, draft: Draft) -> None:
        """Gives a checked job its id; the reply waits for the journal."""
        peer, request, outcome = checked.peer, checked.request, checked.outcome
        try:
            if isinstance(outcome, Refusal):
                raise outcome
            self._need_room()
            spec, row = self._register.admit(outcome)
        except Refusal as refusal:
            self._send(peer, _error(request, refusal))
            return
        if row is not None:
            draft.jobs.append(row)
            draft.add(JobSubmitted(spec=spec))
            logger().info("job submitted", job=spec.id)

        def reply() -> None:
            position = self._queries.position(spec.id)
            answer = Submitted(request=request, job=spec.id, created=row is not None, position=position)
            self._send(peer, answer)

        draft.after.append(reply)

    def cancel(self, peer: bytes, cancel: Cancel, draft: Draft) -> None:
        """Cancels an open job; one that is over keeps its state, which the reply says."""
        job, request = cancel.job, cancel.request
        try:
            state = self._queries.job(job).state
            if state not in FINAL_STATES:
                self._need_room()
                draft.add(CancelRequested(job=job))
        except Refusal as refusal:
            self._send(peer, _error(request, refusal))
            return
        draft.after.append(
            lambda: self._send(peer, Cancelled(request=request, job=job, state=self._queries.job(job).state))
        )

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
