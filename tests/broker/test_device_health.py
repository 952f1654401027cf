"""What readings of a GPU do to estimates and to who gets work: the rules alone, then in a simulated cluster."""

from dataclasses import replace

import pytest

from broker.device_health import NOTHING, DeviceHealth, Verdict
from broker.dispatch import idle_cause
from broker.estimates import Estimate
from broker.harness import Simulation
from broker.state import Worker
from broker.views import health, node_views, status_view
from digend.wire.devices import DeviceState
from digend.wire.records import IdleRecord, Notice, TaskFailure, TaskRecord
from digend.wire.tasks import TaskError
from tests.broker import support
from tests.broker.support import GENERATOR, TRAINER, S, bodies, job, last_state, simulate

GIB = 2**30
FINE = DeviceState(
    device="cuda:0",
    status="ok",
    age_s=0.0,
    sm_clock_mhz=1980,
    max_sm_clock_mhz=1980,
    free_bytes=60 * GIB,
    total_bytes=80 * GIB,
)
HOT = replace(FINE, sm_clock_mhz=1410, throttle=("thermal",))
LOST = DeviceState(device="cuda:0", status="lost", age_s=0.0)


def judged(health: DeviceHealth, *states: DeviceState, kind: str = "generate", start: int = 0) -> list[Verdict]:
    """One reading a second from `start` on, all under one lease."""
    return [
        health.at_work((start + at) * S, state, kind, f"{kind}-{start}", 0) for at, state in enumerate(states, start=1)
    ]


def settled(kind: str = "generate") -> DeviceHealth:
    health = DeviceHealth()
    assert judged(health, FINE, FINE, FINE, kind=kind) == [NOTHING] * 3
    return health


# ------------------------------------------------------------------------------------------------- clock and throttle


def test_three_readings_in_a_row_rescale() -> None:
    slow = replace(FINE, sm_clock_mhz=990)
    verdicts = judged(settled(), slow, slow, slow, slow, start=10)
    assert [verdict.factor for verdict in verdicts] == [1.0, 1.0, 2.0, 1.0]
    assert not any(verdict.invalid for verdict in verdicts)


def test_a_clock_that_comes_back_scales_back() -> None:
    slow = replace(FINE, sm_clock_mhz=990)
    verdicts = judged(settled(), *[slow] * 3, *[FINE] * 3, start=10)
    assert [verdict.factor for verdict in verdicts if verdict.factor != 1.0] == [2.0, 0.5]


def test_one_or_two_readings_decide_nothing() -> None:
    assert judged(settled(), HOT, HOT, FINE, HOT, FINE, HOT, HOT, FINE, start=10) == [NOTHING] * 8


def test_jitter_is_left_to_the_medians() -> None:
    clocks = (1980, 1850, 1905, 1830, 1980, 1790)
    assert judged(settled(), *(replace(FINE, sm_clock_mhz=clock) for clock in clocks), start=10) == [NOTHING] * 6


@pytest.mark.parametrize("reason", ["thermal", "hardware thermal", "hardware slowdown", "power brake"])
def test_a_slowdown_that_comes_or_goes_invalidates(reason: str) -> None:
    held = replace(FINE, throttle=(reason,))
    verdicts = judged(settled(), *[held] * 4, *[FINE] * 4, start=10)
    assert [verdict.invalid for verdict in verdicts] == [False, False, True, False] * 2
    assert reason in verdicts[2].why


@pytest.mark.parametrize("reason", ["power cap", "application clocks", "sync boost", "idle"])
def test_other_reasons_invalidate_nothing(reason: str) -> None:
    assert judged(settled(), *[replace(FINE, throttle=(reason,))] * 6, start=10) == [NOTHING] * 6


def test_a_slowdown_from_the_start_is_how_it_was_measured() -> None:
    assert judged(DeviceHealth(), *[HOT] * 6) == [NOTHING] * 6


def test_a_hot_gpu_is_both_rescaled_and_doubted() -> None:
    verdict = judged(settled(), HOT, HOT, HOT, start=10)[-1]
    assert verdict.factor == pytest.approx(1980 / 1410)
    assert verdict.invalid
    assert verdict.why == "1410 MHz, thermal"


@pytest.mark.parametrize(
    "unusable",
    [
        replace(HOT, status="stale"),
        replace(HOT, age_s=4.0),
        replace(HOT, throttle=("idle",), sm_clock_mhz=345),
        LOST,
    ],
)
def test_stale_old_idle_and_lost_readings_decide_nothing(unusable: DeviceState) -> None:
    assert judged(settled(), *[unusable] * 5, start=10) == [NOTHING] * 5


def test_an_unknown_clock_decides_nothing() -> None:
    assert judged(settled(), *[replace(FINE, sm_clock_mhz=0)] * 5, start=10) == [NOTHING] * 5


def test_a_reading_from_before_the_task_does_not_count() -> None:
    health = settled()
    assert [health.at_work(at * S, replace(HOT, age_s=1.5), "generate", "l", at * S - S) for at in range(10, 20)] == [
        NOTHING
    ] * 10


def test_a_reading_told_twice_counts_once() -> None:
    health = settled()
    for tenth in range(10):
        again = replace(HOT, age_s=tenth / 10)
        assert health.at_work(10 * S + tenth * S // 10, again, "generate", "l", 0) == NOTHING
    assert list(health.reasons).count(("thermal",)) == 1


def test_each_kind_of_task_has_its_own_clock() -> None:
    """An update draws more power and clocks lower: no change when the two take turns."""
    health, update = DeviceHealth(), replace(FINE, sm_clock_mhz=1500)
    for turn in range(5):
        assert judged(health, *[FINE] * 4, kind="assist", start=20 * turn) == [NOTHING] * 4
        assert judged(health, *[update] * 4, kind="update", start=20 * turn + 10) == [NOTHING] * 4


def test_a_drop_seen_in_one_kind_is_not_counted_again_in_another() -> None:
    health, update = DeviceHealth(), replace(FINE, sm_clock_mhz=1500)
    judged(health, *[FINE] * 3, kind="assist")
    judged(health, *[update] * 3, kind="update", start=10)
    half = judged(health, *[replace(FINE, sm_clock_mhz=750)] * 3, kind="update", start=20)
    assert half[-1].factor == 2.0
    assert judged(health, *[replace(FINE, sm_clock_mhz=990)] * 5, kind="assist", start=30) == [NOTHING] * 5


def test_new_measurements_move_the_clock_they_were_made_at() -> None:
    """4 % down with every task: the tasks themselves tell, and no jump is made up in the end."""
    health, clock = DeviceHealth(), 1980.0
    for task in range(12):
        state = replace(FINE, sm_clock_mhz=round(clock))
        assert judged(health, *[state] * 4, start=10 * task) == [NOTHING] * 4
        clock *= 0.96


# -------------------------------------------------------------------------------------------------------- estimates


def test_estimates_rescale_and_are_replaced_when_in_doubt() -> None:
    estimate = Estimate()
    for total in (900, 100, 120, 110):
        estimate.add(total, 1)
    estimate.rescale(2.0)
    assert estimate.ns == 220
    estimate.invalidate()
    assert estimate.ns == 220
    estimate.add(500, 1)
    estimate.add(700, 1)
    assert estimate.ns == 600


def test_an_empty_estimate_can_be_rescaled_and_doubted() -> None:
    estimate = Estimate()
    estimate.rescale(3.0)
    estimate.invalidate()
    assert estimate.ns is None
    estimate.add(100, 1)
    assert estimate.ns == 100


# ----------------------------------------------------------------------------------------------------------- memory


def at_rest(free: int, cached: int = 0, now: int = 10) -> DeviceHealth:
    health = DeviceHealth()
    health.memory(now * S, replace(FINE, free_bytes=free, cached_bytes=cached), 0)
    return health


def test_room_is_free_memory_with_what_the_allocator_keeps() -> None:
    assert at_rest(30 * GIB).room(11 * S, "j")
    assert not at_rest(3 * GIB).room(11 * S, "j")
    assert at_rest(3 * GIB, cached=30 * GIB).room(11 * S, "j")


def test_unknown_memory_is_no_obstacle_until_it_ran_out() -> None:
    health = DeviceHealth()
    assert health.room(0, "j")
    health.ran_out(11 * S, "j")
    assert not health.room(0, "j")
    assert health.room(0, "another")


def test_after_running_out_more_must_be_free_than_then() -> None:
    health = at_rest(20 * GIB)
    health.ran_out(11 * S, "j")
    assert not health.room(11 * S, "j")
    health.memory(12 * S, replace(FINE, free_bytes=29 * GIB), 0)
    assert not health.room(12 * S, "j")
    health.memory(13 * S, replace(FINE, free_bytes=30 * GIB), 0)
    assert health.room(13 * S, "j")
    assert not health.room(13 * 60 * S, "j"), "that was long ago"


def test_free_memory_from_before_a_model_was_loaded_says_nothing() -> None:
    health = at_rest(3 * GIB)
    health.loaded()
    assert health.room(11 * S, "j")
    health.memory(12 * S, replace(FINE, free_bytes=GIB, age_s=2.0), 11 * S)
    assert health.room(12 * S, "j"), "read while the task still ran"


# ---------------------------------------------------------------------------------------------- a simulated cluster


def worker(simulation: Simulation, name: str) -> Worker:
    found: Worker = simulation.core.state.workers[name]
    return found


LONG = replace(support.TIMES, generate=8 * S, assist=8 * S, update=2 * S, score=0)
"""Each fragment runs long enough to be seen at work several times."""


def num_tasks(simulation: Simulation, name: str) -> int:
    known = simulation.core.state.workers.get(name)
    return known.num_tasks if known else 0


def reached(simulation: Simulation, global_step: int) -> bool:
    jobs = simulation.core.state.jobs
    return "j1" in jobs and jobs["j1"].global_step >= global_step


def notices(simulation: Simulation) -> list[str]:
    return [notice.message for notice in bodies(simulation, Notice)]


def test_a_clock_drop_moves_shares_before_a_task_tells_of_it() -> None:
    simulation = simulate(job(num_global_steps=3, prompts_per_rollout=8, prompts=support.prompts(8)), times=LONG)
    other = "n/generator/1"
    for name in (GENERATOR, other):
        simulation.shells[name].device = FINE
    simulation.run(until=lambda: num_tasks(simulation, GENERATOR) >= 5)
    before = worker(simulation, GENERATOR).generation.ns
    assert before == worker(simulation, other).generation.ns
    simulation.shells[GENERATOR].device = replace(FINE, sm_clock_mhz=660)
    simulation.run(until=lambda: bool(notices(simulation)))
    assert worker(simulation, GENERATOR).generation.ns == pytest.approx(3 * (before or 0))
    assert notices(simulation) == [f"times of {GENERATOR} rescaled by 3.00: 660 MHz, no slowdown"]
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    at_ns = next(record.at_ns for record in simulation.records["j1"] if isinstance(record.body, Notice))
    dealt = [
        (task.worker, task.num_samples)
        for task in bodies(simulation, TaskRecord)
        if task.task == "generate" and at_ns < task.start_ns < at_ns + 12 * S
    ]
    assert (GENERATOR, 1) in dealt
    assert (other, 3) in dealt
    assert simulation.replay() is None


def test_a_throttled_worker_is_measured_anew() -> None:
    simulation = simulate(job(num_global_steps=2, prompts_per_rollout=8, prompts=support.prompts(8)), times=LONG)
    simulation.shells[GENERATOR].device = FINE
    simulation.run(until=lambda: num_tasks(simulation, GENERATOR) >= 6)
    simulation.shells[GENERATOR].device = HOT
    simulation.run(until=lambda: bool(notices(simulation)))
    assert notices(simulation) == [f"times of {GENERATOR} rescaled by 1.40 and in doubt: 1410 MHz, thermal"]
    estimate = worker(simulation, GENERATOR).generation
    assert estimate.doubtful
    assert len(estimate.recent) > 1
    done = num_tasks(simulation, GENERATOR)
    simulation.run(until=lambda: num_tasks(simulation, GENERATOR) > done)
    assert not estimate.doubtful
    assert len(estimate.recent) == 1


def test_no_gpu_no_change() -> None:
    """The same run, with and without readings that say nothing new."""
    plain, read = (simulate(job(), times=LONG) for _ in range(2))
    for shell in read.shells.values():
        shell.device = FINE
    for simulation in (plain, read):
        simulation.run()
    assert plain.records == read.records


def test_a_lost_gpu_gets_no_work_and_is_named() -> None:
    simulation = simulate(job(num_global_steps=2), times=LONG)
    simulation.run(until=lambda: num_tasks(simulation, GENERATOR) >= 4)
    simulation.shells[GENERATOR].device = LOST
    lost_ns = simulation.now_ns
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    assert f"{GENERATOR}: its GPU cuda:0 is lost, it gets no more work" in notices(simulation)
    begun = [task.start_ns for task in bodies(simulation, TaskRecord) if task.worker == GENERATOR]
    assert max(begun) <= lost_ns + S
    idle = [idle for idle in bodies(simulation, IdleRecord) if idle.worker == GENERATOR and idle.cause == "GPU lost"]
    assert idle
    assert not any(each.bubble for each in idle)
    view = {node.name: node for node in node_views(simulation.core.state, simulation.now_ns)}[GENERATOR]
    assert view.health == "GPU lost"
    problems = status_view(simulation.core.state, simulation.now_ns, 0).problems
    assert any(GENERATOR in problem and "GPU is lost" in problem for problem in problems)
    assert simulation.replay() is None


def test_a_gpu_that_is_back_works_again() -> None:
    simulation = simulate(job(num_global_steps=3), times=LONG)
    simulation.shells[GENERATOR].device = LOST
    simulation.run(until=lambda: reached(simulation, 1))
    assert idle_cause(simulation.core.state, simulation.job("j1"), worker(simulation, GENERATOR))[0] == "GPU lost"
    done = num_tasks(simulation, GENERATOR)
    simulation.shells[GENERATOR].device = FINE
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    assert num_tasks(simulation, GENERATOR) > done
    assert notices(simulation)[-1] == f"{GENERATOR}: its GPU cuda:0 is back"


@pytest.mark.parametrize("strategy", ["always", "planned"])
def test_the_trainer_assists_only_where_memory_allows(strategy: str) -> None:
    """A probe too."""
    spec = job(strategy=strategy, prompts_per_rollout=8, prompts=support.prompts(8), tag_memory="shared")
    full, roomy = (simulate(spec, times=replace(LONG, prepare=3 * S, encode=2 * S)) for _ in range(2))
    for simulation, free in ((full, GIB), (roomy, 40 * GIB)):
        simulation.shells[TRAINER].device = replace(FINE, free_bytes=free)
        simulation.run()
        assert last_state(simulation)[0] == "completed"
    assert _num_assisted(roomy) > 0
    assert _num_assisted(full) == 0


@pytest.mark.parametrize(("tag_memory", "tries"), [("shared", 1), ("auto", 2), ("offload", 1)])
def test_a_rollout_that_ran_out_of_memory_is_not_tried_again(tag_memory: str, tries: int) -> None:
    """auto: once more with training state offloaded."""

    def tamper(shell, task, result):  # type: ignore[no-untyped-def]
        if task.kind == "generate" and task.assist:
            return TaskError(reason="out_of_memory", message="60 GiB", retry=True)
        return result

    spec = job(
        strategy="always",
        prompts_per_rollout=8,
        prompts=support.prompts(8),
        task_retries=tries,
        tag_memory=tag_memory,
    )
    simulation = simulate(spec, times=LONG, tamper=tamper)
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    assert len(bodies(simulation, TaskFailure)) == tries


def _num_assisted(simulation: Simulation) -> int:
    return sum(task.task == "assist" for task in bodies(simulation, TaskRecord))


# ------------------------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (replace(HOT, free_bytes=round(61.2 * GIB)), "1410/1980 MHz, thermal, 61.2 GiB free"),
        (FINE, "1980/1980 MHz, 60.0 GiB free"),
        (replace(FINE, status="stale", age_s=12.3), "not read for 12 s, 1980/1980 MHz, 60.0 GiB free"),
        (DeviceState(device="cuda:0", status="stale", age_s=31.0), "not read for 31 s"),
        (LOST, "GPU lost"),
    ],
)
def test_words(device: DeviceState, words: str) -> None:
    assert health(device) == words
