"""Several jobs at once: pools that do not overlap run side by side, the others in order, each with a reason."""

from collections.abc import Iterable

import pytest

from broker.commands import SendTask
from broker.events import PriorityRequested
from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.placement import overlap
from broker.usage import HALF_LIFE_NS, Usage
from broker.views import job_view, status_view
from digend.wire.records import JobState, TaskRecord
from tests.broker.audit import audit, check_seconds
from tests.broker.support import TIMES, S, bodies, job, last_state


def box(name: str, num_generators: int = 1, num_rewards: int = 0, trainer: bool = True) -> list[Slot]:
    made = [Slot(name=f"{name}/generator/{index}", role="generator") for index in range(num_generators)]
    made += [Slot(name=f"{name}/reward/{index}", role="reward") for index in range(num_rewards)]
    return made + ([Slot(name=f"{name}/trainer/0", role="trainer")] if trainer else [])


def cluster(*boxes: list[Slot]) -> Simulation:
    return Simulation(TIMES, [slot for each in boxes for slot in each], persist_ns=0)


def run(simulation: Simulation) -> None:
    simulation.run(limit_ns=1000 * S)
    simulation.settle()


def order_of_starts(simulation: Simulation, *jobs: str) -> list[str]:
    return sorted(jobs, key=lambda name: simulation.job(name).started_ns or 0)


def reasons(simulation: Simulation, name: str) -> list[str]:
    """Of a job while it was queued, in order."""
    return [body.reason for body in bodies(simulation, JobState, name) if body.state == "queued"]


def users(simulation: Simulation, name: str) -> set[str]:
    """Workers that did something for a job."""
    return {body.worker for body in bodies(simulation, TaskRecord, name)}


def tasks_in_flight(simulation: Simulation) -> Iterable[tuple[int, str, str]]:
    for batch in simulation.batches:
        for command in batch.commands:
            if isinstance(command, SendTask):
                yield batch.now_ns, command.session, command.task.job


def test_jobs_on_nodes_of_their_own_run_at_the_same_time() -> None:
    simulation = cluster(box("a"), box("b"))
    specs = [job(id="one", nodes=("a",)), job(id="two", nodes=("b",))]
    for spec in specs:
        simulation.submit(spec)
    run(simulation)
    one, two = simulation.job("one"), simulation.job("two")
    assert (one.started_ns, one.finished_ns) == (two.started_ns, two.finished_ns)
    assert users(simulation, "one") == {"a/generator/0", "a/trainer/0"}
    assert users(simulation, "two") == {"b/generator/0", "b/trainer/0"}
    for spec, name in zip(specs, "ab", strict=True):
        audit(simulation, spec)
        check_seconds(simulation, spec, [f"{name}/generator/0", f"{name}/trainer/0"])


def test_a_job_without_nodes_waits_for_all_and_says_where() -> None:
    simulation = cluster(box("a"), box("b"))
    simulation.submit(job(id="one", nodes=("a",)))
    simulation.submit(job(id="all"))
    simulation.submit(job(id="two", nodes=("b",)))
    run(simulation)
    assert reasons(simulation, "all") == ["submitted", "waits for a: one runs there"]
    assert reasons(simulation, "two") == ["submitted", "all was submitted before it", "waits for b: all runs there"]
    assert order_of_starts(simulation, "one", "all", "two") == ["one", "all", "two"]


def test_two_jobs_with_one_trainer_wait_for_it() -> None:
    """Their generators do not overlap, and there is one trainer."""
    simulation = cluster(box("a"), box("b", trainer=False))
    simulation.submit(job(id="one", generators=("a/generator/0",)))
    simulation.submit(job(id="two", generators=("b/generator/0",)))
    simulation.submit(job(id="three", generators=("b/generator/0",)))
    run(simulation)
    assert reasons(simulation, "two") == ["submitted", "waits for a/trainer/0: one trains there"]
    assert reasons(simulation, "three")[1:] == ["two was submitted before it", "waits for b: two runs there"]
    assert simulation.job("two").started_ns == simulation.job("one").finished_ns


def test_two_trainers_and_generators_by_name_share_a_node() -> None:
    simulation = cluster(box("a", 2), box("b", 0))
    simulation.submit(job(id="one", generators=("a/generator/0",)))
    simulation.submit(job(id="two", generators=("a/generator/1",)))
    run(simulation)
    assert simulation.job("one").started_ns == simulation.job("two").started_ns
    assert not users(simulation, "one") & users(simulation, "two")


def test_colocated_jobs_need_a_trainer_each_and_nothing_else() -> None:
    simulation = cluster(box("a", 0), box("b", 0))
    for name in ("one", "two", "three"):
        simulation.submit(job(id=name, generators=()))
    run(simulation)
    assert simulation.job("one").started_ns == simulation.job("two").started_ns
    assert reasons(simulation, "three")[1] == "waits for a/trainer/0: one trains there"


def test_rewards_are_part_of_a_pool() -> None:
    simulation = cluster(box("a", 1, 1), box("b", 1))
    simulation.submit(job(id="one", scoring="dedicated", generators=("a/generator/0",)))
    simulation.submit(job(id="two", scoring="dedicated", generators=("b/generator/0",)))
    run(simulation)
    assert reasons(simulation, "two")[1] == "waits for a: one runs there"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({}, {}, True),
        ({"nodes": ("a",)}, {}, True),
        ({"nodes": ("a",)}, {"nodes": ("b", "c")}, False),
        ({"nodes": ("a", "b")}, {"nodes": ("b", "c")}, True),
        ({"generators": ()}, {}, False),
        ({"generators": ("a/generator/0",)}, {"generators": ("a/generator/1",)}, False),
        ({"generators": ("a/generator/0",)}, {"nodes": ("a",)}, True),
        ({"generators": ("a/generator/0",)}, {"nodes": ("b",)}, False),
        ({"generators": ("a/generator/0",), "nodes": ("b",)}, {}, False),
        ({"generators": (), "scoring": "dedicated"}, {"generators": (), "scoring": "dedicated"}, True),
    ],
)
def test_whose_pools_overlap(one: dict[str, object], other: dict[str, object], expected: bool) -> None:
    assert overlap(job(**one), job(**other)) is expected
    assert overlap(job(**other), job(**one)) is expected


def test_the_highest_priority_starts_next_and_nothing_is_preempted() -> None:
    simulation = cluster(box("a"))
    for name, priority in (("first", 0), ("low", -1), ("usual", 0), ("high", 5)):
        simulation.submit(job(id=name, num_global_steps=1), priority=priority)
    run(simulation)
    assert order_of_starts(simulation, "first", "low", "usual", "high") == ["high", "first", "usual", "low"]
    assert reasons(simulation, "usual")[1:3] == [
        "waits for a: high runs there; first was submitted before it",
        "waits for a: first runs there",
    ]
    assert reasons(simulation, "low")[2] == "waits for a: first runs there; priority 0 of usual is before it"


def test_priority_is_changed_while_the_job_waits() -> None:
    simulation = cluster(box("a"))
    for name in ("one", "two", "three"):
        simulation.submit(job(id=name, num_global_steps=1))
    simulation.at(S, lambda: simulation.ask(PriorityRequested(job="three", priority=1)))
    run(simulation)
    assert order_of_starts(simulation, "one", "two", "three") == ["one", "three", "two"]
    assert "waits for a: one runs there; priority 1 of three is before it" in reasons(simulation, "two")
    assert job_view(simulation.core.state, simulation.job("three")).priority == 1


def test_who_used_less_worker_time_goes_first() -> None:
    simulation = cluster(box("a"))
    simulation.submit(job(id="ann-1", num_global_steps=1), user="ann")
    simulation.run()
    for name in ("ann-2", "ann-3", "bob-1"):
        simulation.submit(job(id=name, num_global_steps=1), user=name[:3])
    run(simulation)
    assert order_of_starts(simulation, "ann-2", "ann-3", "bob-1") == ["bob-1", "ann-2", "ann-3"]
    assert reasons(simulation, "ann-3")[-1] == "waits for a: ann-2 runs there"


def test_usage_halves_in_a_day() -> None:
    used = Usage(1000, 0)
    assert [used.at(days * HALF_LIFE_NS) for days in (0, 1, 2, 300)] == [1000, 500, 250, 0]
    assert used.at(HALF_LIFE_NS // 2) == 750
    assert used.plus(10, HALF_LIFE_NS) == Usage(510, HALF_LIFE_NS)


def test_a_job_that_lacks_its_node_keeps_nobody_from_working() -> None:
    simulation = cluster(box("box-a"))
    simulation.submit(job(id="lost", nodes=("box-b",)))
    simulation.submit(job(id="here"))
    simulation.run(until=lambda: not simulation.job("here").open if "here" in simulation.core.state.jobs else False)
    assert last_state(simulation, "lost") == ("queued", "no trainer of box-b is connected; did you mean box-a?")
    problems = status_view(simulation.core.state, simulation.now_ns, 0).problems
    assert problems == ("job lost waits: no trainer of box-b is connected; did you mean box-a?",)
    for slot in box("box-b"):
        simulation.connect(slot)
    run(simulation)
    assert last_state(simulation, "lost") == ("completed", "")


def test_a_trainer_lost_for_good_is_replaced_while_there_is_no_checkpoint() -> None:
    simulation = cluster(box("a"), box("b", 0))
    spec = job(checkpoint_every=0)
    simulation.submit(spec)
    simulation.run(until=lambda: simulation.now_ns > 3 * S)
    assert simulation.job("j1").trainer == "a/trainer/0"
    simulation.kill("a/trainer/0")
    run(simulation)
    assert last_state(simulation) == ("completed", "")
    assert {"a/trainer/0", "b/trainer/0"} <= users(simulation, "j1")
    audit(simulation, spec)


def test_with_a_checkpoint_the_job_waits_for_the_node_that_has_it() -> None:
    simulation = cluster(box("a"), box("b", 0))
    spec = job(checkpoint_every=1, num_global_steps=3)
    simulation.submit(spec)
    simulation.run(until=lambda: "j1" in simulation.core.state.jobs and simulation.job("j1").checkpoint is not None)
    simulation.kill("a/trainer/0", 30 * S)
    simulation.run(until=lambda: simulation.now_ns > 20 * S)
    reason = "no trainer of a, where its checkpoint is, is connected"
    assert last_state(simulation) == ("preparing", reason)
    run(simulation)
    assert last_state(simulation) == ("completed", "")
    audit(simulation, spec)
