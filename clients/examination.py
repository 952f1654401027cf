"""`digenctl doctor` from end to end: this box first, then the driver, then all that the driver can tell.

Owns the order. Invariant: what cannot be asked becomes a finding, never an exception.
"""

import time
from collections.abc import Iterator

from clients.api import Digend
from clients.box_checks import check_address, check_box, check_digenctl, check_keys
from clients.cluster_checks import (
    check_clocks,
    check_disks,
    check_gpus,
    check_job,
    check_strangers,
    check_versions,
    check_workers,
)
from clients.this_box import this_box
from digend.config.errors import ConfigError
from digend.exitcodes import ExitCode
from digend.findings import Finding, exit_code
from digend.net.client import ClientError, DriverUnreachable, NotAdmitted
from digend.wire.errors import ProtocolError

SETTINGS = "settings"


class Examination:
    """`found`: findings so far."""

    def __init__(self, driver: Digend) -> None:
        self._driver = driver
        self._unreachable = False
        self.found: list[Finding] = []

    def findings(self) -> Iterator[Finding]:
        """Every finding as it is made."""
        for finding in self._every():
            self.found.append(finding)
            yield finding

    @property
    def code(self) -> ExitCode:
        """As `digend doctor`; where only the driver does not answer, what every verb ends with then."""
        settled = any(finding.what == SETTINGS and finding.level == "error" for finding in self.found)
        return ExitCode.DRIVER_UNREACHABLE if self._unreachable and not settled else exit_code(self.found)

    def _every(self) -> Iterator[Finding]:
        yield from check_digenctl()
        yield from check_address(self._driver.address)
        try:
            box = this_box(self._driver)
            if box is not None:
                yield from check_box(box)
        except ConfigError as error:
            yield Finding("error", SETTINGS, str(error))
        try:
            self._driver.require_socket()
            yield from _cluster(self._driver)
            yield from check_keys(self._driver.address)
        except NotAdmitted as error:
            yield Finding("error", "keys", str(error))
        except (ClientError, ProtocolError) as error:
            self._unreachable = isinstance(error, DriverUnreachable)
            yield Finding("error", "driver", str(error))


def _cluster(driver: Digend) -> Iterator[Finding]:
    nodes, status = driver.nodes(), driver.status()
    yield from check_versions(driver.version(), nodes)
    place = driver.place()
    yield from check_clocks(place, time.time_ns(), nodes)
    yield from check_disks(place)
    yield from check_strangers(place)
    yield from check_workers(status, nodes)
    yield from check_gpus(nodes)
    if status.job is not None:
        yield from check_job(driver.job(status.job.id), driver.job_file(status.job.id))
