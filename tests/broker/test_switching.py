"""TAG with training state offloaded: when the core asks for it, and what it takes a change of mode to cost."""

from dataclasses import replace
from statistics import mean

import pytest

from broker.estimates import Estimate
from broker.forecast import is_unmeasured, measure, model_of
from broker.harness import Simulation
from broker.harness_times import Times
from broker.state import Job, Lease, Worker
from broker.switching import may_generate, offloads, switch_ns
from digend.wire.devices import DeviceState
from digend.wire.records import Decision, TaskRecord
from digend.wire.tasks import LOAD, OFFLOAD, RESTORE, GenerateTask, Receipt, TaskError
from tests.broker.support import MS, TIMES, TRAINER, S, bodies, finished, job, last_state, prompts, simulate
from tests.broker.test_device_health import FINE, GIB, LONG
from tests.broker.test_global_step import sent
from tests.broker.test_task_failures import once

EIGHT = {"prompts": prompts(8), "prompts_per_rollout": 8}
FULL = replace(FINE, free_bytes=GIB)


def offloaded(simulation: Simulation) -> list[bool]:
    """Of each TAG, in order."""
    tasks = [order.task for order in sent(simulation, GenerateTask)]
    return [task.offload for task in tasks if isinstance(task, GenerateTask) and task.assist]


def run(device: DeviceState | None, tag_memory: str, strategy: str = "always", **changes: object) -> Simulation:
    spec = job(strategy=strategy, tag_memory=tag_memory, num_global_steps=3, **EIGHT, **changes)
    simulation = simulate(spec, times=replace(LONG, prepare=3 * S, encode=2 * S, switch=S))
    simulation.shells[TRAINER].device = device
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    assert simulation.replay() is None
    return simulation


@pytest.mark.parametrize("strategy", ["always", "planned"])
def test_auto_offloads_where_memory_is_short_and_only_there(strategy: str) -> None:
    assert set(offloaded(run(FULL, "auto", strategy))) == {True}
    assert set(offloaded(run(FINE, "auto", strategy))) == {False}
    assert set(offloaded(run(None, "auto", strategy))) == {False}


def test_the_job_may_say_so() -> None:
    assert set(offloaded(run(FINE, "offload"))) == {True}
    assert set(offloaded(run(FINE, "shared"))) == {False}
    assert offloaded(run(FULL, "shared")) == []


def test_generators_and_evaluations_are_never_asked_to() -> None:
    simulation = run(None, "offload")
    tasks = [order.task for order in sent(simulation, GenerateTask)]
    assert not any(task.offload for task in tasks if isinstance(task, GenerateTask) and not task.assist)


@pytest.mark.parametrize(("tag_memory", "expected"), [("offload", {True}), ("auto", {False}), ("shared", {False})])
def test_a_colocated_job_offloads_where_it_is_told_to(tag_memory: str, expected: set[bool]) -> None:
    spec = job(generators=(), tag_memory=tag_memory, strategy="never")
    simulation = simulate(spec, times=LONG)
    simulation.shells[TRAINER].device = FULL
    simulation.run()
    tasks = [order.task for order in sent(simulation, GenerateTask)]
    assert {task.offload for task in tasks if isinstance(task, GenerateTask)} == expected


def test_a_colocated_job_offloads_once_a_rollout_ran_out_of_memory() -> None:
    error = TaskError(reason="out_of_memory", message="no memory left", retry=True)
    simulation = simulate(job(generators=(), strategy="never"), times=LONG, tamper=once("generate", error))
    simulation.run()
    assert last_state(simulation)[0] == "completed"
    assert simulation.replay() is None
    tasks = [order.task for order in sent(simulation, GenerateTask)]
    asked = [task.offload for task in tasks if isinstance(task, GenerateTask)]
    assert asked[:2] == [False, True]
    assert asked.count(False) == 1


def worker(simulation: Simulation) -> Worker:
    found: Worker = simulation.core.state.workers[TRAINER]
    return found


def test_memory_that_offloading_frees_is_not_taken_to_be_there_for_training_too() -> None:
    """Else auto would change its mind with every TAG."""
    times = replace(LONG, prepare=3 * S, encode=2 * S, switch=S)
    simulation = simulate(job(strategy="always", num_global_steps=3, **EIGHT), times=times)
    shell = simulation.shells[TRAINER]
    shell.device = FULL

    def look() -> bool:
        leases = [lease.label for lease in simulation.core.state.leases.values() if lease.worker == TRAINER]
        away = TRAINER in simulation.core.state.workers and worker(simulation).offloaded and leases != ["update"]
        shell.device = FINE if away else FULL
        return simulation.ended()

    simulation.run(until=look)
    assert set(offloaded(simulation)) == {True}


# -------------------------------------------------------------------------------------------------------------- c


def at_second_tag(tag_memory: str = "offload") -> tuple[Simulation, Job, Worker, Lease]:
    simulation = simulate(job(strategy="always", tag_memory=tag_memory, **EIGHT), 1)
    leases = simulation.core.state.leases

    def tagging() -> bool:
        return any(lease.label == "assist" for lease in leases.values())

    simulation.run(until=tagging)
    (lease,) = [lease for lease in leases.values() if lease.label == "assist"]
    trainer = worker(simulation)
    trainer.tasks.clear()
    return simulation, simulation.job("j1"), trainer, lease


def receipt(total: int, **stages: int) -> Receipt:
    return Receipt(total_ns=total * MS, stages=tuple((name, ms * MS) for name, ms in stages.items()))


def test_c_is_half_of_there_and_back_and_off_the_tasks() -> None:
    _, found, trainer, tag = at_second_tag()
    update = replace(tag, label="update")
    there = {OFFLOAD: 30, LOAD: 10, "generate": 900}
    for _ in range(3):
        trainer.offloaded = True
        assert measure(found, trainer, tag, receipt(1000, **there), 4) == 30 * MS
        assert measure(found, trainer, update, receipt(580, **{RESTORE: 80, "update": 400}), 0) == 80 * MS
        assert measure(found, trainer, update, receipt(500, update=400), 0) is None
    assert switch_ns(found, trainer, True) == 55 * MS
    assert trainer.tasks["j1", "assist"].ns == 970 * MS / 4, "each TAG loads the weights that draw"
    assert trainer.tasks["j1", "update"].ns == 500 * MS
    assert switch_ns(found, trainer, False) is None, "what shared memory takes is another figure"
    assert not trainer.offloaded


def test_one_slow_switch_does_not_count() -> None:
    _, found, trainer, tag = at_second_tag()
    for ms in (900, 40, 42, 700, 41, 40):  # page-locking is paid for once, and once the machine was busy
        trainer.offloaded = True
        measure(found, trainer, tag, receipt(1000, **{OFFLOAD: ms}), 4)
    assert switch_ns(found, trainer, True) == 41 * MS


@pytest.mark.parametrize(("after", "cold"), [((70, 72, 74, 71), 22), ((70, 40, 74, 49), 0), ((50, 50, 50, 50), 0)])
def test_cold_caches_count_where_they_stand_out_of_noise(after: tuple[int, ...], cold: int) -> None:
    """The median after TAG over that after an update, once for there and back; 50 ms is the plain one here."""
    simulation, found, trainer, tag = at_second_tag("shared")
    update = replace(tag, label="update")
    generator = simulation.core.state.workers["n/generator/0"]
    measure(found, generator, replace(tag, label="generate"), receipt(100), 4)
    for ms in (900, *after):  # the first of a kind never counts beside others
        measure(found, trainer, tag, receipt(100), 4)
        measure(found, trainer, update, receipt(ms), 0)
        for plain in (48, 50, 52):
            told = measure(found, trainer, update, receipt(plain), 0)
            assert told is None
    model = model_of(simulation.core.state, found, trainer)
    assert model is not None
    assert model.times.update == 50_000
    assert model.times.switch == pytest.approx(cold * 500, abs=500)


def test_one_way_stands_for_both_until_the_other_is_known() -> None:
    _, found, trainer, tag = at_second_tag()
    trainer.offloaded = True
    measure(found, trainer, tag, receipt(1000, **{OFFLOAD: 30}), 4)
    assert switch_ns(found, trainer, True) == 30 * MS


def test_tag_is_measured_anew_when_it_begins_to_offload() -> None:
    """Two tasks in shared memory say nothing of the switch."""
    simulation, found, trainer, tag = at_second_tag("auto")
    state = simulation.core.state
    for _ in range(2):
        measure(found, trainer, tag, receipt(1000), 4)
    assert not is_unmeasured(state, found, trainer)
    trainer.health.ran_out(state.now, "j1")
    assert offloads(state, found, trainer)
    assert is_unmeasured(state, found, trainer)
    trainer.offloaded = True
    measure(found, trainer, tag, receipt(1000, **{OFFLOAD: 900}), 4)
    assert is_unmeasured(state, found, trainer), "the first may pay for more"
    measure(found, trainer, tag, receipt(1000, **{OFFLOAD: 30}), 4)
    assert not is_unmeasured(state, found, trainer)
    assert switch_ns(found, trainer, True) == 30 * MS


def test_where_offloading_was_not_enough_there_is_no_tag() -> None:
    simulation, found, trainer, _ = at_second_tag("auto")
    state = simulation.core.state
    trainer.health.ran_out(state.now, "j1")
    assert may_generate(state, found, trainer)
    trainer.health.ran_out(state.now, "j1", offloaded=True)
    assert not may_generate(state, found, trainer)


def test_a_search_takes_the_switch_that_was_measured() -> None:
    times = Times(generate=100 * MS, assist=120 * MS, update=40 * MS, switch=17 * MS)
    spec = job(strategy="planned", tag_memory="offload", num_global_steps=4, checkpoint_every=0, **EIGHT)
    simulation = finished(spec, 1, times=times, torpid_s=1e6, lost_s=2e6)
    searched = [body.times_us["switch"] for body in bodies(simulation, Decision) if body.times_us]
    spent = [
        ns
        for body in bodies(simulation, TaskRecord)
        for stage, ns in body.receipt.stages
        if stage in (OFFLOAD, RESTORE)
    ]
    assert searched
    assert set(searched) == {17_000} == {round(mean(spent)) // 1000}


def test_an_estimate_of_a_switch_follows_the_clock_like_any_other() -> None:
    _, found, trainer, tag = at_second_tag()
    trainer.offloaded = True
    measure(found, trainer, tag, receipt(1000, **{OFFLOAD: 30}), 4)
    assert all(isinstance(each, Estimate) for each in trainer.estimates)
    for each in trainer.estimates:
        each.rescale(2.0)
    assert switch_ns(found, trainer, True) == 60 * MS
    assert TIMES.switch == 0
