"""Driver and recorder as units of a real systemd: boot, start, failure, reload."""

import pytest

from tests.e2e.cluster import wait_until
from tests.lab.host import SETTINGS, Host, settings_file

DRIVER, RECORDER = "digend-driver", "digend-recorder"
WORKERS = tuple(f"digend-{role}@0" for role in ("generator", "trainer", "reward"))
EXPOSURES = {"digend": 13, DRIVER: 13, RECORDER: 13, **dict.fromkeys(WORKERS, 15)}
"""Highest that `systemd-analyze security` may find, times 10."""


def recorder_state(host: Host) -> str:
    """As the driver sees it; nothing where it does not know it."""
    nodes = host.digenctl("nodes")["nodes"]
    return next((str(node["state"]) for node in nodes if node["name"] == "lab/recorder/0"), "")


def test_the_boot_started_what_is_enabled(host: Host) -> None:
    assert host.show("digend", "UnitFileState") == "enabled"
    for unit in ("digend", DRIVER, RECORDER):
        host.becomes(unit, "ActiveState", "active")
    host.becomes(DRIVER, "StatusText", "no job; 0 workers")
    host.becomes(RECORDER, "StatusText", "recording")


def test_start_fails_with_the_reason_where_the_settings_cannot_be_read_at_boot(host: Host) -> None:
    host.systemctl("stop", "digend", "digend-*")
    host.write(SETTINGS, "driver = {}\n" + settings_file(recorder=True))
    host.systemctl("daemon-reload")
    assert host.execute("systemctl", "start", "digend").returncode != 0
    assert host.says("digend", "line 1: write it as a table of its own: [driver]")
    host.configure(driver={}, recorder=True)
    host.systemctl("daemon-reload")


def test_start_returns_when_all_is_ready(host: Host) -> None:
    host.systemctl("start", "digend")
    assert recorder_state(host) == "idle"
    entered = [int(host.show(unit, "ActiveEnterTimestampMonotonic")) for unit in (DRIVER, RECORDER, "digend")]
    assert entered == sorted(entered)


def test_units_have_nothing_that_systemd_does_not_know(host: Host) -> None:
    """`verify` succeeds whatever it finds; what counts is what it says."""
    done = host.execute("systemd-analyze", "verify", *(f"{unit}.service" for unit in EXPOSURES))
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("unit", EXPOSURES)
def test_the_sandbox_is_as_tight_as_it_was(host: Host, unit: str) -> None:
    done = host.execute("systemd-analyze", "security", f"--threshold={EXPOSURES[unit]}", f"{unit}.service")
    assert done.returncode == 0, done.stdout


def test_daemons_are_nobody_in_particular(host: Host) -> None:
    pid = host.show(DRIVER, "MainPID")
    status = dict(line.split(":\t", 1) for line in host.run("cat", f"/proc/{pid}/status").splitlines())
    assert status["Uid"].split()[0] == host.run("id", "-u", "digend").strip() != "0"
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_people_of_the_group_and_nobody_else_may_ask_the_driver(host: Host) -> None:
    ask = ["/opt/digend/bin/digenctl", "status"]
    assert host.execute("setpriv", "--reuid=65534", "--regid=digend", "--clear-groups", *ask).returncode == 0
    stranger = host.execute("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *ask)
    assert stranger.returncode == 69
    assert "permission denied; join the driver's group" in stranger.stderr


def test_a_killed_driver_is_started_again_and_found_again(host: Host) -> None:
    pid = host.show(DRIVER, "MainPID")
    host.run("kill", "-KILL", pid)
    host.replaced(DRIVER, pid)
    assert int(host.show(DRIVER, "NRestarts")) >= 1
    wait_until(lambda: recorder_state(host) == "idle", "the recorder has joined again")


def test_a_hanging_daemon_is_killed_and_leaves_a_traceback(host: Host) -> None:
    drop_in = f"/run/systemd/system/{RECORDER}.service.d"
    host.write(f"{drop_in}/lab.conf", "[Service]\nWatchdogSec=2\n")
    host.systemctl("daemon-reload")
    host.systemctl("restart", RECORDER)
    pid = host.show(RECORDER, "MainPID")
    host.run("kill", "-STOP", pid)
    host.replaced(RECORDER, pid)
    said = [str(entry["MESSAGE"]) for entry in host.journal("-u", RECORDER)]
    assert any("Watchdog timeout" in line for line in said)
    assert any(line.startswith("Fatal Python error: Aborted") for line in said)
    host.run("rm", "-r", drop_in)
    host.systemctl("daemon-reload")
    host.systemctl("restart", RECORDER)


def test_bad_configuration_is_not_tried_again(host: Host) -> None:
    host.write(SETTINGS, "[drivr]\n")
    assert host.execute("systemctl", "restart", DRIVER).returncode != 0
    assert [host.show(DRIVER, name) for name in ("SubState", "ExecMainStatus", "NRestarts")] == ["failed", "78", "0"]
    assert host.says(DRIVER, "drivr: unknown key; did you mean driver?")
    host.configure(driver={}, recorder=True)
    host.systemctl("start", DRIVER)


def test_asked_to_stop_is_no_failure_and_it_stays_down(host: Host) -> None:
    host.run("kill", "-TERM", host.show(DRIVER, "MainPID"))
    host.becomes(DRIVER, "ActiveState", "inactive")
    assert [host.show(DRIVER, name) for name in ("SubState", "ExecMainStatus", "Result")] == ["dead", "42", "success"]
    host.systemctl("start", "digend")
    assert host.show(DRIVER, "ActiveState") == "active"


def test_reload_takes_what_changed_without_a_restart(host: Host) -> None:
    pids = {unit: host.show(unit, "MainPID") for unit in (DRIVER, RECORDER)}
    host.configure(driver={"journal": "other.sqlite"}, recorder=True, log_level="debug", timing={"lost_s": 30.0})
    host.systemctl("reload", "digend")
    for unit, changed in ((DRIVER, '["log_level", "timing.lost_s"]'), (RECORDER, '["log_level", "timing.lost_s"]')):
        wait_until(lambda: host.says(unit, f"read again changed={changed}"), f"{unit} read the settings")  # noqa: B023
    assert host.says(DRIVER, 'waiting_for_restart=["driver.journal"]')
    assert {unit: host.show(unit, "MainPID") for unit in pids} == pids
    host.configure(driver={}, recorder=True)
    host.systemctl("reload", "digend")
    host.becomes(DRIVER, "ActiveState", "active")


def test_reload_of_a_broken_list_of_keys_fails_and_changes_nothing(host: Host) -> None:
    entry = host.run("/opt/digend/bin/digenctl", "keygen", "lab", "--role", "driver", "--out", "/etc/digend/key")
    host.run("chown", "digend", "/etc/digend/key")
    host.write("/etc/digend/keys.toml", entry)
    keys = {"private": "/etc/digend/key", "allowed": "/etc/digend/keys.toml"}
    host.configure(driver={}, recorder=True, keys=keys)
    host.systemctl("restart", "digend")
    pid = host.show(DRIVER, "MainPID")
    host.write("/etc/digend/keys.toml", entry.replace("driver", "client"))
    failed = host.execute("systemctl", "reload", "digend")
    assert failed.returncode != 0
    assert host.says("digend", "no key has the role driver")
    wait_until(lambda: "settings refused at" in host.show(DRIVER, "StatusText"), "the driver's status says so")
    host.write("/etc/digend/keys.toml", entry)
    host.systemctl("reload", "digend")
    wait_until(lambda: "refused" not in host.show(DRIVER, "StatusText"), "all is well again")
    assert host.show(DRIVER, "MainPID") == pid
    host.configure(driver={}, recorder=True)
    host.systemctl("restart", "digend")


def test_reload_of_a_broken_file_fails_and_changes_nothing(host: Host) -> None:
    pid = host.show(DRIVER, "MainPID")
    host.write(SETTINGS, 'log_level = "loud"\n' + settings_file(driver={}, recorder=True))
    assert host.execute("systemctl", "reload", "digend").returncode != 0
    wait_until(lambda: "settings refused at" in host.show(DRIVER, "StatusText"), "the driver's status says so")
    assert 'log_level = "loud": expected one of debug' in host.show(DRIVER, "StatusText")
    assert host.says(DRIVER, "the settings are refused, what was read before stays")
    assert (host.show(DRIVER, "MainPID"), host.show(DRIVER, "ActiveState")) == (pid, "active")
    host.configure(driver={}, recorder=True)
    host.systemctl("reload", "digend")
    host.becomes(DRIVER, "StatusText", "no job; 0 workers")
