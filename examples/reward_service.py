"""A reward service in one file: how bright each picture is. Take it as a start; docs/reward-service.md has the bodies.

    python examples/reward_service.py --port 8900

It answers GET /ready with 200 once it could score, and POST /score with one value a sample. Needs numpy and PIL;
msgpack bodies need msgpack too.
"""

import argparse
import base64
import io
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image

MAX_BYTES = 256 << 20


def score(prompt, metadata, frames):
    """Yours goes here. frames: uint8 [F, H, W, 3], an image is one frame. Returns a float; None if it cannot tell."""
    return float(frames.mean() / 255)


def read_samples(body, kind):
    """(prompt, metadata, frames) of each sample of a request."""
    if kind == "application/msgpack":
        import msgpack

        document = msgpack.unpackb(body)
    else:
        document = json.loads(body)
    for sample in document["samples"]:
        if "pixels" in sample:
            frames = np.frombuffer(sample["pixels"], np.uint8).reshape(sample["shape"])
        else:
            files = [io.BytesIO(base64.b64decode(each)) for each in sample["frames"]]
            frames = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        yield sample["prompt"], sample["metadata"], frames


def answer(body, kind, pause_s):
    """The body of the reply: a value a sample, and a reason for each that has none."""
    values, failures = [], {}
    for at, sample in enumerate(read_samples(body, kind)):
        time.sleep(pause_s)
        try:
            values.append(score(*sample))
        except Exception as error:
            values.append(None)
            failures[str(at)] = f"{type(error).__name__}: {error}"
    document = {"values": values, "failures": failures}
    if kind == "application/msgpack":
        import msgpack

        return msgpack.packb(document)
    return json.dumps(document).encode()


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pause_s = 0.0

    def do_GET(self):
        self.reply(200 if self.path == "/ready" else 404, "text/plain", b"")

    def do_POST(self):
        kind, length = self.headers.get("Content-Type", ""), int(self.headers.get("Content-Length", 0))
        if self.path != "/score" or length > MAX_BYTES:
            self.reply(404 if self.path != "/score" else 413, "text/plain", b"")
            return
        try:
            content = answer(self.rfile.read(length), kind, self.pause_s)
        except Exception as error:  # the request is not what the page says: 4xx is not tried again, 5xx is
            self.reply(400, "text/plain", f"{type(error).__name__}: {error}".encode())
            return
        self.reply(200, kind, content)

    def reply(self, status, kind, content):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass


def main():
    parser = argparse.ArgumentParser(description="A reward service that tells how bright pictures are.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; there is no password (%(default)s)")
    parser.add_argument("--port", type=int, default=8900, help="0: a free one (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a sample takes, to try a slow judge")
    given = parser.parse_args()
    Requests.pause_s = given.pause
    server = ThreadingHTTPServer((given.host, given.port), Requests)
    print(f"http://{given.host}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
