"""Asking a service over HTTP: several addresses, many requests at a time, bounded in time whatever the other side does.

Owns connections, deadlines, and which address is asked next. Knows nothing of rewards: bytes go out, bytes or a reason
come back. Invariants: `ask_all` returns one outcome a request, no later than `deadline_s` after the last one came in
(and a grace), even where a server dribbles or never answers; nothing is read beyond MAX_REPLY_BYTES.

An address that failed rests, longer each time up to `max_backoff_s`; a request that finds all of them resting waits.
429 and 5xx are such failures; any other status but 200 is the request's own fault and is not tried again.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import urllib3

from digend.rewards.service_options import ServiceOptions
from digend.telemetry.waiting import waiting

MAX_REPLY_BYTES = 4 << 20
CHUNK_BYTES = 1 << 16
GRACE_S = 2.0
"""After a request's deadline, before its thread is given up."""
LOOK_S = 0.1
"""How often the caller is told though nothing new has come, so that it can stop."""
READY_PAUSE_S = 0.2
BUSY_STATUS = (408, 425, 429)


class ServiceError(Exception):
    """No usable reply; the message says why, without the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of status 200, and how long the try that brought it took."""

    content: bytes
    latency_s: float


Outcome = Reply | ServiceError


@dataclass(slots=True)
class _Address:
    url: str
    in_flight: int = 0
    failures: int = 0
    """In a row."""
    rests_until: float = 0.0


class _Later(Exception):
    """This try failed; another may not."""


class Service:
    """The addresses of one service. `ask_all` is called from one thread at a time."""

    def __init__(self, options: ServiceOptions, headers: Mapping[str, str]) -> None:
        """Raises ServiceError where the variable with the key is empty."""
        self._options = options
        self._headers = {**headers, **_authorization(options.key_variable)}
        self._addresses = [_Address(url) for url in options.urls]
        self._changed = threading.Condition()
        self._pool = urllib3.PoolManager(
            num_pools=len(self._addresses), maxsize=options.concurrency, retries=False, timeout=options.timeout_s
        )

    def wait_until_ready(self, path: str) -> None:
        """Until GET of `path` gives 200 at one address. Raises ServiceError that names each address and its reason."""
        deadline = time.monotonic() + self._options.ready_s
        with waiting(" or ".join(each.url for each in self._addresses), self._options.ready_s) as wait:
            while self._options.ready_s:
                reasons = {each.url: self._readiness(each.url + path) for each in self._addresses}
                if not all(reasons.values()):
                    return
                if time.monotonic() >= deadline:
                    told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
                    raise ServiceError(f"not ready after {self._options.ready_s:g} s: {told}")
                wait.for_what = " or ".join(f"{url} ({reason})" for url, reason in reasons.items())
                time.sleep(READY_PAUSE_S)

    def _readiness(self, url: str) -> str:
        """ "" where it is ready, else why it is not."""
        try:
            answer = self._pool.request("GET", url, headers=self._headers, redirect=False, preload_content=False)
            answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            return _words(error)
        return "" if answer.status == 200 else f"status {answer.status}"

    def ask_all(self, path: str, bodies: Sequence[bytes], told: Callable[[int], None]) -> list[Outcome]:
        """Posts each body to `path`; outcomes in the order of bodies.

        `told(n)` is called on this thread with the number of outcomes so far, again and again; what it raises ends all.
        """
        outcomes: dict[int, Outcome] = {}
        todo, done, stopped = deque(enumerate(bodies)), SimpleQueue[tuple[int, Outcome]](), threading.Event()
        for _ in range(min(len(bodies), self._options.concurrency * len(self._addresses))):
            threading.Thread(target=self._work, args=(path, todo, done, stopped), daemon=True).start()
        patience = time.monotonic() + self._options.deadline_s + GRACE_S
        try:
            while len(outcomes) < len(bodies) and time.monotonic() < patience:
                try:
                    at, outcome = done.get(timeout=LOOK_S)
                    outcomes[at] = outcome
                    patience = time.monotonic() + self._options.deadline_s + GRACE_S
                except Empty:
                    pass
                told(len(outcomes))
        finally:
            stopped.set()
        late = ServiceError(f"no reply in {self._options.deadline_s:g} s")
        return [outcomes.get(at, late) for at in range(len(bodies))]

    def _work(
        self,
        path: str,
        todo: deque[tuple[int, bytes]],
        done: "SimpleQueue[tuple[int, Outcome]]",
        stopped: threading.Event,
    ) -> None:
        while not stopped.is_set():
            try:
                at, body = todo.popleft()
            except IndexError:
                return
            try:
                done.put((at, self._ask(path, body, stopped)))
            except ServiceError as error:
                done.put((at, error))
            except Exception as error:
                done.put((at, ServiceError(f"{type(error).__name__}: {error}")))

    def _ask(self, path: str, body: bytes, stopped: threading.Event) -> Reply:
        """Tries until a reply, a refusal or the deadline."""
        deadline = time.monotonic() + self._options.deadline_s
        why = "no address was free"
        while not stopped.is_set():
            address = self._take(deadline)
            if address is None:
                break
            begun = time.monotonic()
            failed = True
            try:
                content = self._try(address.url + path, body, min(deadline, begun + self._options.timeout_s))
                failed = False
                return Reply(content=content, latency_s=time.monotonic() - begun)
            except _Later as error:
                why = f"{address.url}: {error}"
            except ServiceError:
                failed = False
                raise
            finally:
                self._give_back(address, failed)
        raise ServiceError(f"no reply in {self._options.deadline_s:g} s, last {why}")

    def _take(self, deadline: float) -> _Address | None:
        """The least busy address that does not rest; None where there is none before the deadline."""
        with self._changed:
            while (now := time.monotonic()) < deadline:
                free = [each for each in self._addresses if each.in_flight < self._options.concurrency]
                awake = [each for each in free if each.rests_until <= now]
                if awake:
                    chosen = min(awake, key=lambda each: each.in_flight)
                    chosen.in_flight += 1
                    return chosen
                until = min([each.rests_until for each in free], default=deadline)
                self._changed.wait(max(0.0, min(until, deadline) - now))
        return None

    def _give_back(self, address: _Address, failed: bool) -> None:
        with self._changed:
            address.in_flight -= 1
            address.failures = address.failures + 1 if failed else 0
            rest = self._options.backoff_s * 2 ** min(address.failures - 1, 30) if failed else 0.0
            address.rests_until = time.monotonic() + min(rest, self._options.max_backoff_s)
            self._changed.notify_all()

    def _try(self, url: str, body: bytes, deadline: float) -> bytes:
        """One request. Raises _Later where another try may work, ServiceError where not."""
        seconds = max(0.001, deadline - time.monotonic())
        try:
            answer = self._pool.request(
                "POST",
                url,
                body=body,
                headers=self._headers,
                timeout=urllib3.Timeout(total=seconds),
                redirect=False,
                preload_content=False,
            )
            try:
                content = _read(answer, deadline)
            finally:
                # A connection with bytes left on it is of no use to the next request.
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise _Later(_words(error)) from error
        if answer.status == 200:
            return content
        said = f"status {answer.status}: {content[:200].decode('utf-8', 'replace')}".strip(": ")
        raise _Later(said) if answer.status >= 500 or answer.status in BUSY_STATUS else ServiceError(f"{url}: {said}")


def _authorization(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    key = os.environ.get(variable, "")
    if not key:
        raise ServiceError(f"the environment variable {variable} of the process that scores is empty")
    return {"Authorization": f"Bearer {key}"}


def _read(answer: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """All of a reply, piece by piece, so that one that dribbles cannot outlive its deadline."""
    content = bytearray()
    while piece := answer.read1(CHUNK_BYTES):
        content += piece
        if len(content) > MAX_REPLY_BYTES:
            raise ServiceError(f"the reply is longer than {MAX_REPLY_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise _Later("the reply did not end in time")
    return bytes(content)


def _words(error: urllib3.exceptions.HTTPError) -> str:
    """Short words for what urllib3 says at length, with objects and addresses in it."""
    if isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.NameResolutionError):
        return f"cannot be reached: {error.__cause__ or 'connection failed'}"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "timed out"
    return f"{type(error).__name__}: {error.__cause__ or error}"
