"""`up` as a process over fake programs: restarts, exit codes, order of stopping, no orphans."""

import os
import signal
import subprocess

import pytest

from tests.up.conftest import Up, gone, until

NAMES = ("driver", "recorder", "trainer-0", "generator-0", "generator-1")


def test_killed_programs_are_started_again(up: Up) -> None:
    up.start()
    for name in ("driver", "generator-1"):
        os.kill(up.wait_for(name), signal.SIGKILL)
        again = up.wait_for(name, lives=2)
        assert again != up.starts(name)[0]
    assert len(up.starts("trainer-0")) == 1


def test_stops_in_order_and_leaves_nobody(up: Up) -> None:
    process = up.start()
    pids = [up.wait_for(name) for name in NAMES]
    process.terminate()
    code, log = up.ended()
    assert code == 0
    assert all(gone(pid) for pid in pids)
    stopped = [line.split()[0] for line in up.story() if line.endswith("stopped")]
    assert sorted(stopped[:3]) == ["generator-0", "generator-1", "trainer-0"]
    assert stopped[3:] == ["recorder", "driver"]
    assert "hello from driver" in log
    file = up.folder / "state" / "logs" / "generator-1.log"
    assert file.read_text(encoding="utf-8") == "hello from generator-1\nno pipe, no problem\n"


def test_second_signal_kills(up: Up) -> None:
    up.mode("generator-0", "stubborn")
    process = up.start()
    pids = [up.wait_for(name) for name in NAMES]
    process.send_signal(signal.SIGINT)
    assert gone(pids[2])
    assert process.poll() is None, "the stubborn one is waited for"
    process.send_signal(signal.SIGINT)
    assert up.ended()[0] == 0
    assert all(gone(pid) for pid in pids)


def test_a_hangup_is_told_to_all(up: Up) -> None:
    process = up.start()
    for name in NAMES:
        up.wait_for(name)
    process.send_signal(signal.SIGHUP)
    until(lambda: {f"{name} reloaded" for name in NAMES} <= set(up.story()))
    process.terminate()
    assert up.ended()[0] == 0
    assert all(len(up.starts(name)) == 1 for name in NAMES)


def test_a_hangup_means_the_end_where_the_terminal_is_gone(up: Up) -> None:
    ours, theirs = os.openpty()
    process = up.start(stdin=theirs)
    os.close(theirs)
    for name in NAMES:
        up.wait_for(name)
    process.send_signal(signal.SIGHUP)
    until(lambda: "driver reloaded" in up.story())
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert up.ended()[0] == 0
    assert "driver stopped" in up.story()


def test_nobody_outlives_a_killed_up(up: Up) -> None:
    """Not even a program that ignores SIGTERM; and those that stop do so in order, although their log is gone."""
    up.mode("generator-0", "stubborn")
    process = up.start()
    pids = [up.wait_for(name) for name in NAMES]
    process.kill()
    up.ended()
    assert all(gone(pid) for pid in pids)
    assert sum(line.endswith("stopped") for line in up.story()) == 4


@pytest.mark.parametrize("code", [42, 78])
def test_final_codes_are_not_started_again(up: Up, code: int) -> None:
    """A worker's 78 is named; where all were at work once, the others go on."""
    up.ready()
    process = up.start()
    first = up.wait_for("generator-0")
    up.mode("generator-0", f"exit {code}")
    os.kill(first, signal.SIGKILL)
    up.wait_for("generator-0", lives=2)
    os.kill(up.wait_for("trainer-0"), signal.SIGKILL)
    up.wait_for("trainer-0", lives=2)
    assert len(up.starts("generator-0")) == 2
    process.terminate()
    ended, log = up.ended()
    assert ended == 0
    assert ("configuration was refused" in log) == (code == 78)


def test_a_worker_that_is_refused_before_all_are_at_work_ends_all(up: Up) -> None:
    """Or whoever waits for `ready` would wait for ever."""
    up.mode("generator-0", "exit 78")
    up.start()
    code, log = up.ended()
    assert code == 78
    assert "its configuration was refused, all stop (digend doctor tells more)" in log
    assert "generator-0" in log
    assert all(gone(pid) for name in NAMES for pid in up.starts(name))


def test_a_first_signal_keeps_the_order_also_after_a_refusal(up: Up) -> None:
    up.mode("generator-0", "stubborn")
    process = up.start()
    stubborn, _ = up.wait_for("generator-0"), up.wait_for("generator-1")
    up.mode("trainer-0", "exit 78")
    os.kill(up.wait_for("trainer-0"), signal.SIGKILL)
    until(lambda: "generator-1 stopped" in up.story())
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.terminate()
    assert up.ended()[0] == 78
    assert gone(stubborn)


def test_other_codes_are_started_again(up: Up) -> None:
    up.mode("generator-0", "exit 1")
    up.start()
    up.wait_for("generator-0", lives=4)


def test_driver_that_refuses_its_configuration_ends_all(up: Up) -> None:
    up.mode("driver", "exit 78")
    up.start()
    code, log = up.ended()
    assert code == 78
    assert "driver" in log
    assert all(gone(pid) for name in NAMES for pid in up.starts(name))


def test_ends_when_nothing_is_left_to_watch(up: Up) -> None:
    for name in NAMES:
        up.mode(name, "exit 42")
    up.start()
    assert up.ended()[0] == 0


def test_one_up_a_state_folder(up: Up) -> None:
    first = up.start()
    up.wait_for("driver")
    up.start()
    code, log = up.ended()
    assert code != 0
    assert "another `digend up`" in log
    up.process = first
