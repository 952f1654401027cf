"""dask.distributed for `benchmarks.driver`: empty tasks a second with so many workers (argv: workers, seconds)."""

import json
import sys
import time

from dask.distributed import Client, LocalCluster


def nothing(number):
    return number


def main():
    workers, seconds = int(sys.argv[1]), float(sys.argv[2])
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(nothing, range(10 * workers), pure=False))
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            done += len(client.gather(client.map(nothing, range(200), pure=False)))
        print(json.dumps({"tasks_per_s": done / (time.perf_counter() - begun)}))


if __name__ == "__main__":
    main()
