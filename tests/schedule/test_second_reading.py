"""`digenctl simulate` against a second reading of the rules: several steps, stale work, servers, odd decimals."""

import json
from fractions import Fraction
from random import Random

import pytest
from click.testing import CliRunner

from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from clients.main import cli
from tests.schedule.second_reading import Instance, makespans

MOST = {"never": 9, "always": 9, "static:2": 9, "planned": 7, "bts": 5}
"""Micro-batches that the slow reading is given."""


def random_instance(rng: Random, most: int) -> Instance:
    """Half of the times round, so that instants coincide; the scales are those at which floats would go wrong."""
    scale = rng.choice([1, 0.1, 1e-3, 7.3e5])

    def time(low: float, high: float) -> float:
        odd = round(rng.uniform(low, high), rng.choice([1, 2, 3, 6]))
        return max(1e-6, rng.choice([0.1, 0.2, 0.3, 0.5, 1, 1.5, 2, 3]) if rng.random() < 0.6 else odd) * scale

    return Instance(
        micro_batches=rng.randint(1, most),
        generate=time(0.5, 4),
        update=time(0.1, 4),
        assist=None if rng.random() < 0.08 else time(0.2, 5),
        score=0.0 if rng.random() < 0.3 else time(0.1, 3),
        switch=0.0 if rng.random() < 0.4 else time(0.1, 2),
        commit=0.0 if rng.random() < 0.3 else time(0.1, 2),
        servers=rng.choice([0, 0, 1, 2, 3, most + 2]),
        staleness=rng.choice([0.0, 0.1, 0.25, 0.29, 0.5, 0.75, 1.0]),
        steps=rng.randint(1, 4),
    )


def simulated(given: Instance, strategy: str) -> list[Fraction]:
    times = Times.exact(
        generate=given.generate,
        assist=given.assist,
        update=given.update,
        score=given.score,
        switch=given.switch,
        commit=given.commit,
    )
    model = Model(times=times, servers=given.servers)
    run = Run.of(Setup(model=model, micro_batches=given.micro_batches, steps=given.steps, staleness=given.staleness))
    run.to_end(strategy_of(strategy))
    return [(end - begin) * times.unit for begin, end in zip([0, *run.commits], run.commits, strict=False)]


@pytest.mark.parametrize("strategy", MOST)
def test_makespans_are_those_of_the_second_reading(strategy: str) -> None:
    rng = Random(f"second reading {strategy}")
    for _ in range(30):
        given = random_instance(rng, MOST[strategy])
        assert simulated(given, strategy) == makespans(given, strategy), given


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", MOST)
def test_makespans_are_those_of_the_second_reading_on_many(strategy: str) -> None:
    rng = Random(f"second reading, many {strategy}")
    for _ in range(1000):
        given = random_instance(rng, MOST[strategy])
        assert simulated(given, strategy) == makespans(given, strategy), given


@pytest.mark.parametrize("strategy", MOST)
def test_the_command_prints_them(strategy: str) -> None:
    rng = Random(f"printed {strategy}")
    for _ in range(5):
        given = random_instance(rng, min(4, MOST[strategy]))
        run = CliRunner().invoke(cli, ["simulate", *arguments(given), "--strategy", strategy, "--json"])
        assert run.exit_code == 0, run.output
        told = json.loads(run.output)["makespans"]
        assert told == [float(each) for each in makespans(given, strategy)], given


def arguments(given: Instance) -> list[str]:
    named = ["micro_batches", "generate", "assist", "update", "score", "switch", "commit", "staleness", "steps"]
    values = [(name.replace("_", "-"), getattr(given, name)) for name in named]
    dedicated = ["--scoring", "dedicated", "--servers", str(given.servers)] if given.servers else []
    return [word for name, value in values if value is not None for word in (f"--{name}", repr(value))] + dedicated
