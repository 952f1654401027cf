"""Logs of every daemon: one structlog set-up, lines on stderr, for people (console) or for machines (JSON).

Owns how a line looks and what travels with it: `job`, `micro_batch`, `policy_version` and the process are
bound to the context, never repeated in calls. Must not know who logs. Lines of libraries come out alike. Where
stderr is systemd's journal, it gets fields instead of formatted lines.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from digend.telemetry.journald import JournalHandler, is_journal

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("console", "json")
_NUMBERS = {level: logging.getLevelNamesMapping()[level.upper()] for level in LEVELS}


def set_up(log_format: str, level: str, process: str, stream: TextIO | None = None) -> None:
    """Once a process, before the first line. `process` is its name in the cluster, such as `local/driver`.

    Raises ValueError where format or level is none of `FORMATS`, `LEVELS`. `stream` is stderr where missing.
    """
    if log_format not in FORMATS or level not in LEVELS:
        raise ValueError(f"log format {log_format!r} or level {level!r} is none of {FORMATS}, {LEVELS}")
    out = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler: logging.Handler = _handler(logging.StreamHandler(out), shared, _last(log_format, out))
    if is_journal(out):
        handler = _handler(JournalHandler(handler), shared, _JOURNAL)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_NUMBERS[level])
    structlog.contextvars.bind_contextvars(process=process)


def set_level(level: str) -> None:
    """Another level from now on. Raises ValueError where it is none of `LEVELS`."""
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {LEVELS}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]))
    logging.getLogger().setLevel(_NUMBERS[level])


def is_on(level: str) -> bool:
    """Whether lines of a level are written. A logger that is asked is bound anew each time, which takes much longer."""
    return logging.getLogger().isEnabledFor(_NUMBERS[level])


def logger() -> FilteringBoundLogger:
    """The logger of whoever asks; what is bound to the context is added to each line."""
    log: FilteringBoundLogger = structlog.get_logger()
    return log


@contextmanager
def about(
    *, job: str | None = None, micro_batch: int | None = None, policy_version: int | None = None
) -> Iterator[None]:
    """Lines written inside carry what is given; so do those of a thread that `asyncio.to_thread` starts."""
    given = {"job": job, "micro_batch": micro_batch, "policy_version": policy_version}
    with structlog.contextvars.bound_contextvars(**{name: value for name, value in given.items() if value is not None}):
        yield


def _handler(handler: logging.Handler, shared: list[Processor], last: Sequence[Processor]) -> logging.Handler:
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    return handler


_JOURNAL: tuple[Processor, ...] = (
    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(default=str),
)


def _last(log_format: str, out: TextIO) -> list[Processor]:
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format == "json":
        return [strip, structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(default=str)]
    return [strip, _short, structlog.dev.ConsoleRenderer(colors=out.isatty())]


def _short(_logger: object, _method: str, event: EventDict) -> EventDict:
    """For people: seconds are enough, and whose lines these are stands in the file's name or before each of them."""
    event.pop("process", None)
    event["timestamp"] = event["timestamp"][:19].replace("T", " ") + "Z"
    return event
