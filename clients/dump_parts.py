"""The parts of a dump: this box, the driver, jobs, logs, journal, the doctor's answer.

Owns what goes in. Invariant: where the driver is away, everything that is on this box is there all the same.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from clients.api import Digend
from clients.dump_file import Dump, Missing
from clients.examination import Examination
from clients.journal_copy import NoJournal, copy_journal, jobs_with_secrets
from clients.log_files import files_of, lines_of
from clients.output import plain
from clients.secrets_in_text import (
    masked_environment,
    masked_text,
    masked_toml,
    values_in_environment,
    values_in_toml,
)
from clients.this_box import ThisBox, place_of, this_box
from digend import __version__
from digend.config.errors import ConfigError
from digend.config.inspection import Setting, names, settings
from digend.config.layers import Places
from digend.config.loader import load_settings
from digend.net.client import ClientError, DriverUnreachable
from digend.wire.errors import ProtocolError
from digend.wire.protocol import PROTOCOL

PACKAGES = (
    "torch",
    "diffusers",
    "transformers",
    "peft",
    "safetensors",
    "pyzmq",
    "msgpack",
    "pydantic",
    "click",
    "rich",
)
JOBS = 3
RECORDS = 2000
LOG_LINES = 5000


def collect(driver: Digend, dump: Dump, scratch: Path, journal: bool | None) -> None:
    """Fills a dump. `journal`: whether the journal is copied; None: unless options of jobs in it look like secrets."""
    dump.secrets |= values_in_environment(os.environ)
    dump.add("versions.json", lambda: _json(_versions()))
    dump.add("environment.txt", lambda: masked_environment(os.environ))
    dump.add("doctor.json", lambda: _json(list(Examination(driver).findings())))
    box = _box(driver, dump)
    interview = Interview()
    for name, ask in _questions(driver):
        dump.add(name, partial(interview.answer, ask))
    _jobs(driver, dump, interview)
    _logs(dump, box)
    if journal is False:
        dump.missing["journal.sqlite"] = "left out by --no-journal"
    else:
        dump.add("journal.sqlite", partial(_journal, driver, box, scratch / "journal.sqlite", journal))


def _versions() -> dict[str, object]:
    return {
        "digenctl": __version__,
        "protocol": PROTOCOL,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": {name: _installed(name) for name in PACKAGES},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _box(driver: Digend, dump: Dump) -> ThisBox | None:
    """Files of settings as they are written, and every effective setting with its origin."""
    try:
        box = this_box(driver)
    except ConfigError as error:
        dump.missing["settings.json"] = str(error)
        return None
    if box is None or box.places is None:
        dump.missing["settings.json"] = "no settings of this box: --node, DIGEND_NODE, /etc/digend/digend.toml"
        return box
    places = box.places
    dump.add("settings.json", lambda: _json(_settings(places)))
    for file in names(places, os.environ):
        dump.add(f"settings/{Path(file).name}", lambda file=file: _toml(dump, Path(file).read_text("utf-8")))  # type: ignore[misc]
    return box


def _toml(dump: Dump, text: str) -> str:
    dump.secrets |= values_in_toml(text)
    return masked_toml(text)


def _settings(places: Places) -> list[Setting]:
    try:
        loaded = load_settings(places)
    except ConfigError as error:
        raise Missing(str(error)) from error
    return list(settings(loaded.config, loaded.layers))


def _questions(driver: Digend) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "driver/version.json", driver.version
    yield "driver/place.json", driver.place
    yield "driver/status.json", driver.status
    yield "driver/nodes.json", driver.nodes
    yield "driver/jobs.json", driver.jobs
    yield "driver/queue.json", driver.queue


class Interview:
    """Questions to a driver. Once nobody has answered, nobody is waited for again."""

    def __init__(self) -> None:
        self.away: DriverUnreachable | None = None

    def answer(self, ask: Callable[[], object]) -> str:
        """Raises Missing."""
        if self.away:
            raise Missing(str(self.away))
        try:
            return _json(ask())
        except (ClientError, ProtocolError) as error:
            self.away = error if isinstance(error, DriverUnreachable) else None
            raise Missing(str(error)) from error


def _jobs(driver: Digend, dump: Dump, interview: Interview) -> None:
    """The newest jobs: what became of them, their files, their last records."""
    if interview.away:
        dump.missing["jobs"] = str(interview.away)
        return
    try:
        newest = sorted(driver.newest_jobs().jobs, key=lambda job: job.submitted_ns)[-JOBS:]
        for job in newest:
            dump.add(f"jobs/{job.id}/job.json", partial(interview.answer, partial(driver.job, job.id)))
            dump.add(f"jobs/{job.id}/job.toml", lambda job=job: _toml(dump, driver.job_file(job.id)))  # type: ignore[misc]
            dump.add(f"jobs/{job.id}/records.jsonl", lambda job=job: _records(driver, job.id))  # type: ignore[misc]
    except (ClientError, ProtocolError) as error:
        dump.missing["jobs"] = str(error)


def _records(driver: Digend, job: str) -> str:
    since = max(0, driver.job(job).num_records - RECORDS)
    found = deque(driver.all_records(job, since), RECORDS)
    return masked_text("".join(json.dumps(plain(record), ensure_ascii=False) + "\n" for record in found))


def _logs(dump: Dump, box: ThisBox | None) -> None:
    """Of this box: the last lines of each file, or of systemd's journal."""
    if box is not None and box.logs.is_dir():
        for path in files_of(box.logs):
            dump.add(f"logs/{path.name}", partial(_log_of, path))
    elif Path("/run/systemd/system").is_dir() and shutil.which("journalctl"):
        dump.add("logs/journalctl.txt", _from_journalctl)
    else:
        dump.missing["logs"] = "none of this box: no state folder is known here, or it has no logs"


def _log_of(path: Path) -> str:
    return masked_text("".join(f"{line}\n" for line in deque(lines_of(path), LOG_LINES)))


def _from_journalctl() -> str:
    words = ["journalctl", "--unit", "digend*", "--lines", str(LOG_LINES), "--output", "short-iso", "--no-pager"]
    try:
        found = subprocess.run(words, capture_output=True, check=True, timeout=60).stdout
        return masked_text(found.decode("utf-8", "replace"))
    except subprocess.SubprocessError as error:
        raise Missing(f"journalctl: {error}") from error


def _journal(driver: Digend, box: ThisBox | None, copy: Path, wanted: bool | None) -> Path:
    place = place_of(driver)
    if place is not None and place.host != socket.gethostname():
        raise Missing(f"the driver's journal is on {place.host}: {place.journal}")
    if place is None and box is None:
        raise Missing("no driver answers, and no node file says where its journal is")
    path = Path(place.journal) if place is not None else box.journal if box is not None else copy
    try:
        copy_journal(path, copy)
        secret = [] if wanted else jobs_with_secrets(copy)
    except NoJournal as error:
        raise Missing(str(error)) from error
    if secret:
        raise Missing(f"options of {', '.join(secret)} look like secrets; --journal includes it all the same")
    return copy


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, indent=1, default=str) + "\n"
