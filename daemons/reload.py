"""The settings read again while a daemon runs (SIGHUP, `systemctl reload digend`).

Owns which keys can change in a running process, and what is said of the others. Must not know what a key is for, nor
which files are read: whoever can change hands in how, whoever can read hands in `reread`. Invariant: settings that are
refused change nothing.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from daemons.notify import Notifier
from digend.config.errors import ConfigError
from digend.config.node import NodeConfig
from digend.telemetry.logs import logger, set_level

log = logger()

Change = Callable[[NodeConfig], None]
Reread = Callable[[], NodeConfig]
"""All layers of settings, read again. Raises ConfigError."""

OTHERS = ("driver", "generator", "trainer", "reward", "client")
"""Tables that are the business of one kind of process."""


class Early:
    """Remembers a SIGHUP that comes while the daemon still loads, when it would otherwise end it."""

    asked = False

    def __call__(self, number: int, frame: object) -> None:
        self.asked = True


def remember_early() -> None:
    """From here on, until `Settings.listen`; not in a terminal."""
    if not sys.stdin.isatty():
        signal.signal(signal.SIGHUP, Early())


class Settings:
    """What `reread` gives, last read as `config`, for a process of `role`. `live`: keys that it can change."""

    def __init__(
        self,
        reread: Reread,
        role: str,
        config: NodeConfig,
        notifier: Notifier,
        live: Mapping[str, Change] | None = None,
    ) -> None:
        self._reread = reread
        self._role = role
        self._begun = config
        self._config = config
        self._notifier = notifier
        self._reread = reread
        self._live = {"log_level": lambda config: set_level(config.log_level), **(live or {})}

    def listen(self) -> None:
        """SIGHUP reads them again. Where a person started the process in a terminal it means what it always did:
        the terminal is gone, and so is the process."""
        if not sys.stdin.isatty():
            before = signal.getsignal(signal.SIGHUP)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
            if isinstance(before, Early) and before.asked:
                self.reload()

    def reload(self) -> None:
        """Reads them and changes what can be changed; says what waits for a restart, or why it was refused."""
        self._notifier.reloading()
        try:
            config = self._reread()
        except ConfigError as error:
            log.error("the settings are refused, what was read before stays", reason=str(error))
            self._notifier.complaint = f"settings refused at {datetime.now():%H:%M:%S}: {error.problems[0]}"
        else:
            self._change(config)
            self._notifier.complaint = ""
        self._notifier.reloaded()

    def _change(self, config: NodeConfig) -> None:
        changed = [key for key in self._different(self._config, config) if key in self._live]
        for change in {self._live[key] for key in changed}:
            change(config)
        waiting = [key for key in self._different(self._begun, config) if key not in self._live]
        self._config = config
        log.info("the settings were read again", changed=changed, waiting_for_restart=waiting)

    def _different(self, old: NodeConfig, new: NodeConfig) -> list[str]:
        """Keys that differ, without those of other processes."""
        before, after = dict(_flat(old.model_dump())), dict(_flat(new.model_dump()))
        keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        return [key for key in keys if key.partition(".")[0] not in OTHERS or key.partition(".")[0] == self._role]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
