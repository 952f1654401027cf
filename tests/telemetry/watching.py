"""A process that watches a GPU: `python -m tests.telemetry.watching GPU`. Each line on stdin asks for the state.

Answers with a line of JSON: the state and how long the reading took; ends when stdin does.
"""

import json
import sys
import time
from dataclasses import asdict

from digend.telemetry.gpu_watch import GpuWatch, WatchTiming
from digend.telemetry.logs import set_up

EVERY_S, DEADLINE_S, FIRST_S = 0.03, 1.0, 1.0

if __name__ == "__main__":
    set_up("console", "debug", "watching")
    watch = GpuWatch(WatchTiming(every_s=EVERY_S, deadline_s=DEADLINE_S, first_s=FIRST_S))
    watch.begin("cuda:0", sys.argv[1], lambda: 5)
    for _ in sys.stdin:
        start_s = time.monotonic()
        state = watch.state()
        took_s = time.monotonic() - start_s
        print(json.dumps({"state": asdict(state) if state else None, "took_s": took_s}), flush=True)
