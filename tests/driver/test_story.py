"""Stories told from what a simulated cluster journals: complete, the same in pages as at once, with causes."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from broker import events as e
from broker.commands import SendTask
from broker.harness import Simulation
from broker.harness_engine import Slot
from daemons.driver.story import Story
from digend.wire.records import IdleRecord
from digend.wire.story import StoryCursor, Transition
from digend.wire.subjects import Subject, parsed
from digend.wire.tasks import GenerateTask
from tests.broker.support import GENERATOR, TIMES, TRAINER, S, bodies, finished, job, simulate


def story(simulation: Simulation, subject: str, page: int = 10**9) -> list[Transition]:
    """All of it; a cursor is handed on after every `page` batches."""
    cursor = StoryCursor()
    told: list[Transition] = []
    for start in range(0, len(simulation.batches), page):
        reader = Story(parsed(subject), cursor)
        for batch in simulation.batches[start : start + page]:
            for item in (*batch.events, *batch.commands):
                told += reader.take(batch.now_ns, item)
        cursor = reader.cursor(-1, start)
    return told


def whats(transitions: list[Transition]) -> list[str]:
    return [each.what for each in transitions]


@cache
def eventful() -> Simulation:
    """A job through a killed generator, a frozen one, a restarted driver and a killed trainer."""
    simulation = simulate(job(num_global_steps=3, staleness=0.25))
    simulation.run(lambda: simulation.now_ns > 4 * S)
    simulation.kill(GENERATOR, back_ns=2 * S)
    simulation.run(lambda: simulation.now_ns > 7 * S)
    simulation.restart_driver()
    simulation.run(lambda: simulation.driver_up and simulation.now_ns > 9 * S)
    simulation.freeze("n/generator/1", 20 * S)
    simulation.run(lambda: simulation.now_ns > 27 * S)
    simulation.kill(TRAINER, back_ns=2 * S)
    simulation.run()
    simulation.settle()
    return simulation


def sent(simulation: Simulation) -> Iterator[SendTask]:
    for batch in simulation.batches:
        yield from (command for command in batch.commands if isinstance(command, SendTask))


def test_every_lease_is_granted_once_and_ends_once() -> None:
    simulation = eventful()
    assert simulation.job("j1").state == "completed"
    leases = [command.lease for command in sent(simulation)]
    assert len(leases) > 50
    endings: Counter[str] = Counter()
    for lease in leases:
        told = [each for each in story(simulation, lease) if each.lease == lease]
        assert told[0].what.startswith("leased: "), lease
        assert told[0].cause
        ends = [each for each in told[1:] if re.search(": (done|failed|revoked|lost)", each.what)]
        assert len(ends) == 1, (lease, whats(told))
        endings[re.findall(": (done|failed|revoked|lost)", ends[0].what)[0]] += 1
        assert ends[0].cause or ": done" in ends[0].what
    assert endings["done"] > 40
    assert endings["lost"] + endings["revoked"] > 1
    lost = [body for body in bodies(simulation, IdleRecord) if body.cause.startswith("lost ")]
    assert endings["lost"] + endings["revoked"] + endings["failed"] == len(lost)


@pytest.mark.parametrize("subject", ["j1", GENERATOR, TRAINER, "j1/1/2", "j1/1/2/p3/0", "j1@1"])
@pytest.mark.parametrize("page", [1, 7])
def test_pages_tell_what_one_reading_tells(subject: str, page: int) -> None:
    told = story(eventful(), subject)
    assert told
    assert story(eventful(), subject, page) == told


def test_a_cursor_holds_what_is_live_only() -> None:
    simulation = eventful()
    for subject in (GENERATOR, "j1/1/2", "j1"):
        reader = Story(parsed(subject), StoryCursor())
        for batch in simulation.batches:
            for item in (*batch.events, *batch.commands):
                list(reader.take(batch.now_ns, item))
            cursor = reader.cursor(-1, 0)
            assert len(cursor.sessions) <= 2 * len(simulation.shells)
            assert len(cursor.leases) <= 3
        assert not cursor.leases


def test_a_micro_batch_from_claim_to_commit() -> None:
    simulation = finished(job())
    told = whats(story(simulation, "j1/1/3"))
    order = [told.index(next(each for each in told if each.startswith(begin))) for begin in STAGES]
    assert order == sorted(order)
    generated = [each for each in told if each.startswith("leased: generate")]
    assert sum(int(re.findall(r": (\d+) samples", each)[0]) for each in generated) == 4
    assert "policy version 2 published, weights " in told[-1]


STAGES = ("leased: generate", "generate of micro-batch j1/1/3, fragment 0: done", "leased: score", "leased: update")


def test_a_sample_names_its_reward_and_its_advantage() -> None:
    simulation = finished(job())
    prompts = {
        (group.prompt, task.rollout, task.micro_batch)
        for task in (command.task for command in sent(simulation))
        if isinstance(task, GenerateTask) and task.rollout == 1
        for group in task.groups
    }
    for prompt, rollout, micro_batch in sorted(prompts):
        told = story(simulation, f"j1/{rollout}/{micro_batch}/{prompt}/2")
        assert sum(each.what.startswith("reward ") for each in told) == 1
        trained = [each for each in told if each.what.startswith("trained on at timesteps ")]
        assert len(trained) == 1
        assert trained[0].cause.startswith("advantage ")


def test_a_version_from_its_commit_to_its_retirement() -> None:
    told = story(finished(job(num_global_steps=3)), "j1@1")
    texts = whats(told)
    assert any("policy version 1 published, weights " in each for each in texts)
    assert {each.worker for each in told if each.what == "version 1 staged"} == {GENERATOR, "n/generator/1"}
    assert "made by global step 1" in texts
    assert "in a checkpoint" in texts
    assert any(each.startswith("versions below") for each in texts)


def test_a_worker_with_its_sessions_and_its_losses() -> None:
    told = story(eventful(), GENERATOR)
    texts = whats(told)
    assert sum(each.startswith("HELLO, session ") for each in texts) == 3
    assert "driver restarted, epoch 2" in texts
    assert any(each.what == "left" and each.cause == "its connection was refused" for each in told)
    assert "lost" in texts
    frozen = story(eventful(), "n/generator/1")
    assert any(each.what == "torpid" and "no heartbeat for" in each.cause for each in frozen)
    assert any(each.what == "evicted" for each in frozen)


def test_a_rank_from_meeting_to_leaving() -> None:
    trainers = [Slot(name=f"n/trainer/{slot}", role="trainer") for slot in range(2)]
    spec = job(ranks=2, num_global_steps=3, generators=())
    simulation = Simulation(TIMES, trainers, persist_ns=0)
    simulation.submit(spec)
    simulation.run(until=lambda: bool(simulation.world.ledger))
    simulation.kill("n/trainer/1", back_ns=S)
    simulation.run()
    told = story(simulation, "n/trainer/0")
    ranks = [each for each in told if "epoch" in each.what or "told to meet" in each.what]
    assert whats(ranks)[:5] == [
        "told to open the store of epoch 1",
        "opened the store of epoch 1",
        "told to meet the others as rank 0 of 2",
        "met the other ranks, epoch 1",
        "told to leave the ranks of epoch 1",
    ]
    assert ranks[4].cause.startswith("trainer rank 1 (n/trainer/1) was lost")
    (restarted,) = [each for each in story(simulation, "j1") if each.what.startswith("incarnation 1 goes on")]
    assert restarted.cause == ranks[4].cause


def test_a_job_with_its_causes() -> None:
    told = story(eventful(), "j1")
    texts = whats(told)
    assert texts[0] == "submitted: 3 global steps"
    assert texts[-1] == "completed"
    assert any(each.what.startswith("incarnation 1 goes on") and "trainer" in each.cause for each in told)
    assert not any(each.startswith("leased") for each in texts)


def test_what_never_was_has_no_story() -> None:
    for subject in ("j1/1/2/p1/0", "j1/1/2/p3/9", "j1/9/0", "j1@9", "n/generator/7", "9.9"):
        assert not story(eventful(), subject), subject


@pytest.mark.parametrize(
    "text", ["shapes-001", "n/generator/0", "box/recorder", "shapes-001/3/2", "a.b/0/0/p/with/slash/7", "1.42", "j@12"]
)
def test_what_is_written_of_a_subject_is_read_again(text: str) -> None:
    assert str(parsed(text)) == text


def test_what_is_no_subject_is_told_with_the_forms() -> None:
    with pytest.raises(ValueError, match="JOB/ROLLOUT/MICRO-BATCH"):
        parsed("box/printer/0")


def test_kinds() -> None:
    kinds = [parsed(text).kind for text in ("j", "n/trainer/0", "j/1/2", "j/1/2/p/0", "1.2", "j@1")]
    assert kinds == ["job", "worker", "micro-batch", "sample", "lease", "policy version"]
    assert parsed("j/1/2/p/0") == Subject(kind="sample", job="j", rollout=1, micro_batch=2, prompt="p", index=0)


def test_what_clients_asked_for() -> None:
    asked: dict[e.Event, tuple[str, str, str]] = {
        e.PauseRequested(job="j1", by="ada", why="lunch"): ("j1", "pause taken", "ada asked for it: lunch"),
        e.ResumeRequested(job="j1"): ("j1", "resume taken", "a client asked for it"),
        e.PriorityRequested(job="j1", priority=3): ("j1", "priority 3", "a client asked for it"),
        e.CancelRequested(job="j1", after="global-step"): (
            "j1",
            "cancel taken, after the global-step",
            "a client asked for it",
        ),
        e.DrainRequested(target="n", by="ada", why="fan"): (GENERATOR, "drain of n taken", "ada asked for it: fan"),
        e.UndrainRequested(target=GENERATOR): (GENERATOR, f"undrain of {GENERATOR} taken", "a client asked for it"),
    }
    for event, (subject, what, cause) in asked.items():
        (told,) = Story(parsed(subject), StoryCursor()).take(5, event)
        assert (told.at_ns, told.what, told.cause) == (5, what, cause)
        assert not list(Story(parsed("j2"), StoryCursor()).take(5, event))
