"""A simulated cluster whose jobs train on several ranks, and what is looked for in it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.spec import JobSpec
from digend.wire.records import RestartRecord
from tests.broker.support import MS, TIMES, S, bodies, job, slots

RANKS = ("n/trainer/0", "n/trainer/1", "n/trainer/2")


def trainers(num: int, node: str = "n", **given: Any) -> list[Slot]:
    return [Slot(name=f"{node}/trainer/{index}", role="trainer", **given) for index in range(num)]


def cluster(spec: JobSpec, more: list[Slot], **options: Any) -> Simulation:
    """Two generators and these."""
    times = replace(TIMES, prepare=300 * MS)
    simulation = Simulation(times, [*slots(2, trainer=False), *more], persist_ns=0, **options)
    simulation.submit(spec)
    return simulation


def ranked(num: int = 3, **changes: Any) -> JobSpec:
    return job(**{"ranks": num, "num_global_steps": 4, **changes})


def ended(simulation: Simulation) -> None:
    simulation.run(limit_ns=2_000 * S)
    simulation.settle()


def commands(simulation: Simulation, kind: type) -> list[Any]:
    return [command for batch in simulation.batches for command in batch.commands if isinstance(command, kind)]


def reasons(simulation: Simulation) -> list[str]:
    return [body.reason for body in bodies(simulation, RestartRecord)]


def meets(simulation: Simulation) -> Callable[[], bool]:
    def met() -> bool:
        found = simulation.core.state.jobs.get("j1")
        return found is not None and found.rank_set is not None and found.rank_set.formed

    return met


def updating(simulation: Simulation) -> Callable[[], bool]:
    return lambda: any(lease.label == "update" for lease in simulation.core.state.leases.values())


def session_of(simulation: Simulation, worker: str) -> str:
    session = simulation.core.state.workers[worker].session
    assert session is not None
    return session
