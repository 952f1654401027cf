"""A trainer that dies by SIGKILL with half of its training state copied: `python -m ... JOB_FILE CHECKPOINT ROOT`."""

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from digend.config.job import JobConfig
from digend.engines.offloading import Offloading
from tests.engines.world import bench


def half(self: Offloading, tensors: Mapping[str, Tensor], places: Iterable[Tensor]) -> None:
    into = list(places)
    for tensor, place in list(zip(tensors.values(), into, strict=True))[: len(into) // 2]:
        place.copy_(tensor.data)
        tensor.data = place
    os.kill(os.getpid(), signal.SIGKILL)


def main(job_file: str, checkpoint: str, root: str) -> None:
    config = JobConfig.model_validate_json(Path(job_file).read_bytes())
    on = bench("trainer", config, Path(root), checkpoint=checkpoint, version=1)
    groups = on.groups(1)
    on.update(on.items(groups, on.generate(on.generate_task(version=1, step=1))), step=1)
    Offloading._move = half  # type: ignore[method-assign]
    on.generate(replace(on.generate_task(version=1, step=1), assist=True, offload=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
