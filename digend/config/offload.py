"""What the generators of a box keep in host memory whatever a job says: a weak box offloads, a strong one does not.

Pure. Must not know how it is done (`digend.engines.memory`). Invariant: nothing here changes numbers, so that workers
of one job may differ in it.
"""

from dataclasses import dataclass

from digend.config.job import JobConfig
from digend.config.node import GeneratorNodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """As `offload_encoders` and `offload_blocks` of `[model.memory]`; 0 blocks: all are on the device."""

    encoders: bool = False
    blocks: int = 0


NONE = Offload()


def offload_of(section: GeneratorNodeConfig | None) -> Offload:
    """What the node file says."""
    if section is None:
        return NONE
    return Offload(encoders=section.offload_encoders, blocks=section.offload_blocks)


def with_offload(job: JobConfig, offload: Offload) -> JobConfig:
    """The job as a generator of such a box runs it: of two numbers of blocks, the one that needs less memory."""
    memory = job.model.memory
    blocks = min((each for each in (memory.offload_blocks, offload.blocks) if each), default=0)
    changed = {"offload_encoders": memory.offload_encoders or offload.encoders, "offload_blocks": blocks}
    model = job.model.model_copy(update={"memory": memory.model_copy(update=changed)})
    return job.model_copy(update={"model": model})
