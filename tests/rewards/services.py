"""A reward service of tests, in this process: it behaves as its `answer` says, for each request."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

Answer = Callable[[bytes, "ServiceUnderTest"], "tuple[int, bytes] | None"]
"""(status, body) for a request's body; None breaks the connection."""


@dataclass
class ServiceUnderTest:
    """What it was asked, how many requests it had at most at a time, and a way to let those that hang go."""

    answer: Answer
    url: str = ""
    ready: int = 200
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    at_a_time: int = 0
    most_at_a_time: int = 0
    ending: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def asked(self, path: str, headers: dict[str, str], body: bytes) -> "tuple[int, bytes] | None":
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            self.paths.append(path)
            self.at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            return self.answer(body, self)
        finally:
            with self.lock:
                self.at_a_time -= 1


def values(*given: Any) -> Answer:
    """One that always gives these values."""
    return lambda body, service: (200, json.dumps({"values": list(given)}).encode())


def hangs(body: bytes, service: ServiceUnderTest) -> "tuple[int, bytes] | None":
    """One that does not answer while the test lasts."""
    service.ending.wait(60)
    return None


@contextmanager
def serving(answer: Answer, *, ready: int = 200, port: int = 0) -> Iterator[ServiceUnderTest]:
    """A service on a free port of this machine."""
    service = ServiceUnderTest(answer=answer, ready=ready)

    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply((service.ready if self.path == "/ready" else 404, b""))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(service.asked(self.path, dict(self.headers), body))

        def reply(self, given: tuple[int, bytes] | None) -> None:
            if given is None:
                self.close_connection = True
                return
            try:
                self.send_response(given[0])
                self.send_header("Content-Length", str(len(given[1])))
                self.end_headers()
                self.wfile.write(given[1])
            except OSError:
                self.close_connection = True

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Requests) as server:
        server.daemon_threads = True
        server.block_on_close = False
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield service
        finally:
            service.ending.set()
            server.shutdown()
