"""What a global step cost: its worker time sums to wall time x workers, bubbles are those of the records."""

from collections import Counter
from dataclasses import replace

import pytest

from broker.harness import Simulation
from digend.telemetry.figures import BUBBLE_CAUSES, figures
from digend.wire.records import IdleRecord, StepRecord
from tests.broker.support import TIMES, evaluation, job, simulate, slots


def _steps(simulation: Simulation) -> list[tuple[int, StepRecord]]:
    records = simulation.records["j1"]
    return [(record.at_ns, record.body) for record in records if isinstance(record.body, StepRecord)]


def _bubbles(simulation: Simulation, start_ns: int, end_ns: int) -> Counter[str]:
    """Nanoseconds by cause inside a window, as the stream of records has them."""
    found: Counter[str] = Counter()
    for record in simulation.records["j1"]:
        body = record.body
        if isinstance(body, IdleRecord) and body.bubble:
            found[body.cause] += max(0, min(body.end_ns, end_ns) - max(body.start_ns, start_ns))
    return +found


@pytest.mark.parametrize(
    ("strategy", "scoring", "staleness"), [("never", "colocated", 0.0), ("planned", "dedicated", 0.5)]
)
def test_every_second_of_every_worker_is_in_the_step(strategy: str, scoring: str, staleness: float) -> None:
    spec = job(strategy=strategy, scoring=scoring, staleness=staleness, num_global_steps=3, evaluation=evaluation(2))
    num_rewards = int(scoring == "dedicated")
    simulation = simulate(spec, num_generators=2, num_rewards=num_rewards)
    simulation.run()
    assert len(_steps(simulation)) == 3
    for at_ns, step in _steps(simulation):
        assert step.worker_seconds == pytest.approx((3 + num_rewards) * step.seconds, abs=1e-6)
        wanted = _bubbles(simulation, at_ns - round(step.seconds * 1e9), at_ns)
        assert step.bubble_seconds == pytest.approx({cause: ns / 1e9 for cause, ns in wanted.items()}, abs=1e-6)
        assert set(step.bubble_seconds) <= set(BUBBLE_CAUSES)
        assert 0 <= figures(step)["bubble/share"] <= 1


def test_stale_micro_batches_are_one_version_behind() -> None:
    simulation = simulate(job(strategy="always", staleness=0.5, num_global_steps=3))
    simulation.run()
    for _, step in _steps(simulation):
        assert step.num_micro_batches == 4
        assert step.version_gap == step.stale_micro_batches / 4


def test_gpu_time_is_that_of_workers_on_gpus() -> None:
    some = [replace(slot, device="cuda:0" if slot.role == "trainer" else "cpu") for slot in slots(2)]
    simulation = Simulation(TIMES, some)
    simulation.submit(job())
    simulation.run()
    for _, step in _steps(simulation):
        assert step.gpu_seconds == pytest.approx(step.seconds, abs=1e-6)
