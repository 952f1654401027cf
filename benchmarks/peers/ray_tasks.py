"""Ray actors for `benchmarks.driver`: empty calls a second with so many actors, one call in flight each (argv: actors,
seconds).
"""

import json
import sys
import time

import ray


@ray.remote(num_cpus=0)
class Worker:
    def nothing(self, number):
        return number


def main():
    count, seconds = int(sys.argv[1]), float(sys.argv[2])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    actors = [Worker.remote() for _ in range(count)]
    ray.get([actor.nothing.remote(0) for actor in actors])
    running = {actor.nothing.remote(0): actor for actor in actors}
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        ready, _ = ray.wait(list(running))
        for ref in ready:
            ray.get(ref)
            done += 1
            actor = running.pop(ref)
            running[actor.nothing.remote(0)] = actor
    print(json.dumps({"tasks_per_s": done / (time.perf_counter() - begun)}))
    ray.shutdown()


if __name__ == "__main__":
    main()
