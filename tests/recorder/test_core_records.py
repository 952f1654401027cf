"""The records of the real decision core, in virtual time: every second of every worker is in them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import Simulation
from daemons.recorder.archive import Archive
from daemons.recorder.lines import decode, encode
from digend.telemetry.stages import stage_table
from digend.telemetry.summary import summarise
from tests.broker.support import GENERATOR, MS, TIMES, TRAINER, S, evaluation, job, simulate
from tests.recorder.test_pictures import Nobody

SPEC = job(num_global_steps=3, evaluation=evaluation(3, every=2))
SLOW = replace(TIMES, prepare=2 * S, encode=100 * MS, evaluate=300 * MS, checkpoint=400 * MS, stage=50 * MS)


def plain() -> Simulation:
    return simulate(SPEC, times=SLOW)


def dedicated() -> Simulation:
    return simulate(replace(SPEC, scoring="dedicated"), num_rewards=1, times=SLOW)


def colocated() -> Simulation:
    return simulate(replace(SPEC, generators=()), num_generators=0, times=SLOW)


def assisted() -> Simulation:
    return simulate(replace(SPEC, strategy="always"), times=SLOW)


def generator_killed() -> Simulation:
    simulation = plain()
    simulation.at(6 * S, lambda: simulation.kill(GENERATOR, 3 * S))
    return simulation


def trainer_killed() -> Simulation:
    simulation = plain()
    simulation.at(7 * S, lambda: simulation.kill(TRAINER, 3 * S))
    return simulation


def trainer_killed_unseen() -> Simulation:
    simulation = plain()
    simulation.at(7 * S, lambda: simulation.kill(TRAINER, 3 * S, noticed=False))
    return simulation


RUNS = [plain, dedicated, colocated, assisted, generator_killed, trainer_killed, trainer_killed_unseen]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_seconds_sum_to_wall_time_times_workers(run: Callable[[], Simulation]) -> None:
    simulation = run()
    simulation.run()
    table = stage_table(simulation.records[SPEC.id])
    assert table.wall_s > 10
    for worker, row in table.seconds.items():
        assert sum(row.values()) == pytest.approx(table.wall_s, rel=1e-6), worker
    assert table.unaccounted_share < 0.02


def test_records_of_the_core_are_written_and_told(tmp_path: Path) -> None:
    simulation = trainer_killed()
    simulation.run()
    records = simulation.records[SPEC.id]
    assert [decode(encode(record)) for record in records] == records
    archive = Archive(tmp_path, Nobody())
    archive.write(records, {})
    archive.close()
    folder = tmp_path / SPEC.id
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["job"]["state"] == "completed"
    assert summary["counters"] == summarise(records).counters
    assert summary["counters"]["restarts"] == summary["counters"]["lost_workers"] == 1
    steps = [json.loads(line)["global_step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {1, 2, 3} <= set(steps)
    assert "restart" in (folder / "report.html").read_text()
