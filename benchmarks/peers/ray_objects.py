"""Ray's object store for `benchmarks.data_plane`: for each number of bytes on stdin, one JSON line of two times.

`ready_s`: an actor puts a numpy array into the store. `pull_s`: another actor gets it, and reads one byte of each page,
because getting alone maps memory and moves nothing.
"""

import json
import sys
import time

import numpy as np
import ray


@ray.remote(num_cpus=0)
class Owner:
    def make(self, num_bytes):
        self.data = np.frombuffer(np.random.default_rng(0).bytes(num_bytes), np.uint8)

    def put(self):
        begun = time.perf_counter()
        ref = ray.put(self.data)
        return [ref], time.perf_counter() - begun


@ray.remote(num_cpus=0)
class Consumer:
    def get(self, refs):
        begun = time.perf_counter()
        data = ray.get(refs[0])
        data[::4096].sum()
        return time.perf_counter() - begun


def main():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    owner, consumer = Owner.remote(), Consumer.remote()
    made = 0
    for line in sys.stdin:
        num_bytes = int(line)
        if num_bytes != made:
            ray.get(owner.make.remote(num_bytes))
            made = num_bytes
        refs, ready_s = ray.get(owner.put.remote())
        pull_s = ray.get(consumer.get.remote(refs))
        print(json.dumps({"ready_s": ready_s, "pull_s": pull_s}), flush=True)
        del refs
    ray.shutdown()


if __name__ == "__main__":
    main()
