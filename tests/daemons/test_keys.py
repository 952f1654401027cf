"""Keys from files to exit codes: a driver with keys, a recorder, digenctl and doctor as processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digend.config.errors import ConfigError
from digend.config.keyfiles import CREDENTIAL, load_key_file, load_key_list, private_key_path, too_open
from digend.net.security import new_pair, read_pair, write_pair
from tests.e2e.cluster import wait_until

ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Site:
    """Boxes as folders, each with its settings and key; one list for all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.listed: list[str] = []
        self.list = folder / "keys.toml"

    def run(self, *words: str, **environ: str) -> Done:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DIGEND_")}
        clean |= {"PYTHONPATH": str(ROOT), "DIGEND_ETC": "/nonexistent", "XDG_CONFIG_HOME": str(self.folder / "home")}
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=self.folder, env={**clean, **environ},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def keygen(self, name: str, *roles: str, listed: bool = True) -> Path:
        """A key file, by digenctl."""
        path = self.folder / f"{name}.key"
        words = [word for role in roles for word in ("--role", role)]
        done = self.run("clients.main", "keygen", name, *words, "--out", str(path))
        assert done.returncode == 0, done.stderr
        if listed:
            self.listed.append(done.stdout)
            self.list.write_text("\n".join(self.listed))
        return path

    def node(self, name: str, text: str, *, key: str = "", address: str = "") -> str:
        """A node file of a box."""
        path = self.folder / f"{name}.toml"
        keys = f'[keys]\nprivate = "{key or name}.key"\nallowed = "keys.toml"\n'
        where = address or f"tcp://127.0.0.1:{self.port}"
        path.write_text(f'name = "{name}"\naddress = "{where}"\nstate = "{name}"\nruns = "{name}/runs"\n{text}\n{keys}')
        return str(path)

    def digenctl(self, *words: str, key: str | None = None, **environ: str) -> Done:
        options = ["--key", str(self.folder / f"{key}.key")] if key else []
        return self.run(
            "clients.main", *words, "--address", f"tcp://127.0.0.1:{self.port}", *options, "--reply-timeout", "20",
            **environ,
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def driver(site: Site) -> Iterator[subprocess.Popen[str]]:
    """A driver that lists its own box and ada's key."""
    site.keygen("box-a", "driver", "recorder")
    site.keygen("ada")
    words = ["daemons.main", "driver", "--node", site.node("box-a", "[driver]")]
    log = (site.folder / "driver.log").open("w")
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stderr=log, text=True)
    wait_until(lambda: "driver started" in said(site), "the driver is up")
    yield process
    process.kill()
    process.wait()
    log.close()


def said(site: Site) -> str:
    return (site.folder / "driver.log").read_text()


def test_who_may_do_what_and_with_which_exit_code(site: Site, driver: subprocess.Popen[str]) -> None:
    site.keygen("eve", listed=False)
    done = site.digenctl("jobs", key="ada", DIGEND_KEY="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "no jobs yet; the next step: digenctl submit JOB.toml\n")
    assert site.digenctl("jobs", DIGEND_KEY=str(site.folder / "ada.key")).returncode == 0
    refused = site.digenctl("jobs", "--json", key="eve")
    eve = read_pair(site.folder / "eve.key").public
    assert refused.returncode == 77
    assert json.loads(refused.stdout)["error"]["code"] == 77
    assert f"refused the key {eve}: it is not in the list there" in refused.stderr
    assert "digenctl keygen" in site.digenctl("jobs", key="eve").stderr
    wait_until(lambda: eve in said(site), "the driver names the key")
    assert said(site).count(eve) == 1, "and does so once"
    bare = site.digenctl("jobs")
    assert bare.returncode == 77
    assert "wants keys" in bare.stderr
    machine = site.digenctl("jobs", key="box-a")
    assert machine.returncode == 77
    assert "a ListJobs message is not accepted from the key of box-a (driver, recorder)" in machine.stderr
    assert site.digenctl("nodes", key="box-a").returncode == 0, "digend up asks that"


def test_a_key_is_listed_while_the_driver_runs(site: Site, driver: subprocess.Popen[str]) -> None:
    site.keygen("bob")
    assert site.digenctl("jobs", key="bob").returncode == 77
    driver.send_signal(signal.SIGHUP)
    wait_until(lambda: "settings were read again" in said(site), "the list was read")
    assert "added=['bob (client)'] removed=[]" in said(site)
    assert site.digenctl("jobs", key="bob").returncode == 0
    site.list.write_text(site.list.read_text() + '[[key]]\nname = "x"\nrole = ["client"]\n')
    driver.send_signal(signal.SIGHUP)
    wait_until(lambda: "keys.toml" in said(site), "the list was refused")
    assert 'key[3].role = ["client"]: unknown key; did you mean key[3].roles?' in said(site)
    site.list.write_text("\n".join(site.listed))
    assert site.digenctl("jobs", key="bob").returncode == 0


@pytest.mark.parametrize(
    ("name", "key", "roles", "listed", "why"),
    [
        ("box-b", "box-b", ("recorder",), False, "refused the key"),
        ("box-b", "box-b", ("generator",), True, "the key of box-b (generator) is not listed for a recorder"),
        ("box-b", "box-c", ("recorder",), True, "box-b/recorder/0 of node box-b came with the key of box-c"),
    ],
    ids=["unlisted", "another role", "another name"],
)
def test_a_daemon_that_is_refused_says_so_and_ends(
    site: Site, driver: subprocess.Popen[str], name: str, key: str, roles: tuple[str, ...], listed: bool, why: str
) -> None:
    site.keygen(key, *roles, listed=listed)
    driver.send_signal(signal.SIGHUP)
    wait_until(lambda: "settings were read again" in said(site), "the list was read")
    done = site.run("daemons.main", "recorder", "--node", site.node(name, "recorder = true", key=key))
    assert done.returncode == 78
    assert why in done.stderr
    log = f"key={read_pair(site.folder / f'{key}.key').public}" if not listed else "worker refused"
    wait_until(lambda: log in said(site) or log.replace("key=", "") in said(site), "the driver says so too")


def test_a_wrong_key_of_the_driver_is_said_by_the_daemon_and_by_doctor(
    site: Site, driver: subprocess.Popen[str]
) -> None:
    site.keygen("box-b", "recorder")
    driver.send_signal(signal.SIGHUP)
    wait_until(lambda: "settings were read again" in said(site), "the list was read")
    node = Path(site.node("box-b", "recorder = true"))
    mistaken = site.list.read_text().replace(read_pair(site.folder / "box-a.key").public, new_pair().public)
    (site.folder / "mistaken.toml").write_text(mistaken)
    node.write_text(node.read_text().replace('"keys.toml"', '"mistaken.toml"'))
    log, statuses = site.folder / "recorder.log", socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    statuses.bind(f"\0{site.folder}")
    with log.open("w") as file:
        words = ["daemons.main", "recorder", "--node", str(node)]
        environ = {**os.environ, "NOTIFY_SOCKET": f"@{site.folder}"}
        recorder = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stderr=file, env=environ)
        try:
            wait_until(lambda: "does not let this process in" in log.read_text(), "the recorder says so")
            statuses.settimeout(60)
            while b"is the key of its role in keys.toml" not in (heard := statuses.recv(4096)):
                assert heard
            assert heard.startswith(b"STATUS=waiting for the driver: tcp://127.0.0.1:")
            doctor = site.digenctl("doctor", key="ada")
        finally:
            recorder.kill()
            recorder.wait()
            statuses.close()
    assert log.read_text().count("does not let this process in") == 1, "once"
    assert doctor.returncode == 3
    assert "handshakes failed in the last 5 minutes: some process has another key of the driver" in doctor.stdout
    assert "handshakes fail" in said(site)


def test_garbage_and_half_handshakes_keep_nobody_out(site: Site, driver: subprocess.Popen[str]) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
    parts = (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), greeting[:11], greeting, greeting + os.urandom(202))
    left_open = []
    for data in parts * 20:
        peer = socket.create_connection(("127.0.0.1", site.port))
        peer.sendall(data)
        left_open.append(peer)
    assert site.digenctl("jobs", key="ada").returncode == 0
    for peer in left_open:
        peer.close()
    wait_until(lambda: "handshakes fail" in said(site), "the driver says so")
    assert "handshakes failed" in site.digenctl("doctor", key="ada").stdout
    assert site.digenctl("jobs", key="ada").returncode == 0
    assert driver.poll() is None
    assert said(site).count("handshakes fail") == 1, "however many there are"


def test_an_emptied_list_is_refused_and_the_old_one_stays(site: Site, driver: subprocess.Popen[str]) -> None:
    site.list.write_text("")
    driver.send_signal(signal.SIGHUP)
    wait_until(lambda: "no key has the role driver" in said(site), "the list was refused")
    assert site.digenctl("jobs", key="ada").returncode == 78, "no key of the driver is known here any more"
    site.list.write_text("\n".join(site.listed))
    assert site.digenctl("jobs", key="ada").returncode == 0, "the driver kept what it had"


def test_status_says_whose_traffic_is_encrypted(site: Site, driver: subprocess.Popen[str]) -> None:
    words = ["daemons.main", "recorder", "--node", site.node("box-a", "recorder = true")]
    recorder = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stderr=subprocess.DEVNULL)

    def traffic() -> list[str]:
        done = site.digenctl("status", "--json", key="ada")
        return [node["traffic"] for node in json.loads(done.stdout).get("nodes", [])]

    wait_until(lambda: traffic() == ["encrypted"], "the recorder is there, encrypted")
    assert "encrypted" in site.digenctl("status", key="ada").stdout
    recorder.kill()
    recorder.wait()


@pytest.mark.parametrize("role", ["driver", "recorder"])
def test_no_daemon_starts_off_this_machine_without_keys(site: Site, role: str) -> None:
    path = site.folder / "node.toml"
    path.write_text('address = "tcp://192.0.2.1:5757"\nrecorder = true\n[driver]\n')
    done = site.run("daemons.main", role, "--node", str(path))
    assert done.returncode == 78
    assert "make one with `digenctl keygen` and name it in [keys]" in done.stderr
    assert site.run("clients.main", "jobs", "--address", "tcp://192.0.2.1:5757").returncode == 78


def test_a_private_key_that_others_may_read_is_refused(site: Site) -> None:
    key = site.keygen("box-a", "driver")
    key.chmod(0o640)
    node = site.node("box-a", "[driver]")
    done = site.run("daemons.main", "driver", "--node", node)
    assert done.returncode == 78
    assert "has mode 0640, and a private key must have 0600 (or 0400): chmod 600" in done.stderr
    assert read_secret(key) not in done.stderr
    doctor = site.run("daemons.main", "doctor", node)
    assert doctor.returncode == 78
    assert "error   keys:" in doctor.stdout


def read_secret(key: Path) -> str:
    return key.read_text().split("secret = '")[1].split("'")[0]


def test_doctor_looks_at_the_keys(site: Site) -> None:
    site.keygen("box-a", "driver")
    node = site.node("box-a", "recorder = true\n[driver]")
    found = site.run("daemons.main", "doctor", node).stdout
    assert "a recorder runs here, and the key is not listed for it" in found
    site.listed = [site.listed[0].replace('"driver"', '"driver", "recorder"')]
    site.list.write_text(site.listed[0])
    assert "is listed for box-a (driver, recorder)" in site.run("daemons.main", "doctor", node).stdout
    site.list.write_text(site.listed[0].replace("box-a", "box-z"))
    assert "this box is box-a, and its key is listed for box-z" in site.run("daemons.main", "doctor", node).stdout


# ------------------------------------------------------------------------------------------------------- files


def test_keygen_never_writes_over_a_key(site: Site) -> None:
    key = site.keygen("box-a", "driver", "client")
    before = key.read_text()
    assert oct(key.stat().st_mode & 0o777) == "0o600"
    again = site.run("clients.main", "keygen", "box-a", "--out", str(key))
    assert again.returncode == 2
    assert "never overwritten" in again.stderr
    assert key.read_text() == before
    assert site.listed[0] == (
        f'[[key]]\nname = "box-a"\nroles = ["driver", "client"]\npublic = "{read_pair(key).public}"\n'
    )
    assert site.run("clients.main", "keygen", "box a").returncode == 2


def test_keygen_makes_a_persons_key_where_digenctl_looks_for_it(site: Site) -> None:
    done = site.run("clients.main", "keygen", "ada", "--json")
    made = json.loads(done.stdout)
    assert made["private_file"] == str(site.folder / "home/digend/key.toml")
    assert made["public"] == read_pair(Path(made["private_file"])).public


@pytest.mark.parametrize(
    ("mode", "owner", "user", "why"),
    [
        (0o100600, 7, 7, ""),
        (0o100400, 7, 7, ""),
        (0o100600, 0, 7, ""),
        (0o100600, 7, 0, ""),
        (0o100644, 7, 7, "has mode 0644"),
        (0o100660, 7, 7, "has mode 0660"),
        (0o104600, 7, 7, "has mode 4600"),
        (0o100600, 8, 7, "belongs to user 8"),
        (0o040600, 7, 7, "is no file"),
    ],
)
def test_who_may_use_a_private_key_file(mode: int, owner: int, user: int, why: str) -> None:
    assert too_open(mode, owner, user).startswith(why)
    assert bool(too_open(mode, owner, user)) is bool(why)


def test_a_credential_of_systemd_comes_first(tmp_path: Path) -> None:
    assert private_key_path("/etc/k", {}) == Path("/etc/k")
    assert private_key_path("/etc/k", {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == Path("/etc/k")
    write_pair(new_pair(), tmp_path / CREDENTIAL, "box")
    assert private_key_path("/etc/k", {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == tmp_path / CREDENTIAL


def test_a_credential_may_be_guarded_by_an_access_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = new_pair()
    write_pair(pair, tmp_path / CREDENTIAL, "box")
    (tmp_path / CREDENTIAL).chmod(0o440)
    with pytest.raises(ConfigError, match="has mode 0440"):
        load_key_file(tmp_path / CREDENTIAL)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_pair(tmp_path / CREDENTIAL) == pair


def test_halves_of_two_keys_are_refused(tmp_path: Path) -> None:
    first, second = new_pair(), new_pair()
    path = tmp_path / "key.toml"
    write_pair(first, path, "box")
    path.write_text(path.read_text().replace(first.public, second.public))
    with pytest.raises(ConfigError, match="does not belong to the secret key of this file"):
        read_pair(path)


def test_an_error_never_repeats_a_secret(tmp_path: Path) -> None:
    pair = new_pair()
    path = tmp_path / "key.toml"
    write_pair(pair, path, "box")
    path.write_text(path.read_text().replace(pair.secret, pair.secret[:-1]))
    with pytest.raises(ConfigError) as caught:
        read_pair(path)
    assert "secret: expected a key of 40 characters" in str(caught.value)
    assert pair.secret[:10] not in str(caught.value)
    assert pair.secret not in repr(pair)


def entry(name: str, roles: str, public: str) -> str:
    return f'[[key]]\nname = "{name}"\nroles = [{roles}]\npublic = "{public}"\n'


A, B = new_pair().public, new_pair().public


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key has the role driver"),
        (entry("a", '"client"', A), "no key has the role driver"),
        (entry("a", '"driver"', A) + entry("b", '"driver"', B), ":7: key[1].roles: only one key has the role driver"),
        (entry("a", '"driver"', A) + entry("b", '"client"', A), ":8: key[1].public = "),
        (entry("a", '"driver"', A) + entry("b", '"client"', A), "is listed twice"),
        (entry("a", '"drivr"', A), "(What its owner may be: driver, generator, trainer, reward, recorder, client)"),
        (entry("a", "", A), ":3: key[0].roles"),
        (entry("a b", '"driver"', A), ":2: key[0].name"),
        (entry("a", '"driver"', A[:-1]), "expected a key of 40 characters, as digenctl keygen prints it"),
        (entry("a", '"driver"', "#" * 40), "expected a key of 40 characters"),
        (entry("a", '"driver"', A).replace("roles", "role"), "unknown key; did you mean key[0].roles?"),
    ],
    ids=range(11),  # keys are new each time, and every process must give a test the same name
)
def test_mistakes_in_the_list(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_key_list(path)
    assert why in str(caught.value)
