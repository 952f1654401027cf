"""The receipt's clock."""

from collections.abc import Iterator

from daemons.worker.stages import Stages, StageTimer
from digend.wire.tasks import Receipt


def clock_of(*times: int) -> Iterator[int]:
    return iter(times)


def test_stages_add_up_and_are_exclusive() -> None:
    """decode 0-10, in it fetch 10-40, decode again 40-45, a gap to 50, decode 50-60; asked at 65."""
    times = clock_of(0, 0, 10, 40, 45, 50, 60, 65)
    stages = Stages(lambda: next(times))
    with StageTimer(stages, "decode"), StageTimer(stages, "fetch"):
        pass
    with StageTimer(stages, "decode"):
        pass
    assert stages.receipt(4) == Receipt(total_ns=65, stages=(("decode", 25), ("fetch", 30)), num_samples=4)


def test_a_stage_that_raises_is_closed() -> None:
    times = clock_of(0, 1, 5, 9)
    stages = Stages(lambda: next(times))
    try:
        with StageTimer(stages, "load"):
            raise OSError("no such file")
    except OSError:
        pass
    assert stages.receipt() == Receipt(total_ns=9, stages=(("load", 4),))
