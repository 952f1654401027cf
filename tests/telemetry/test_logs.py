"""Log lines: format, level, context, and libraries that use the standard logging."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from digend.telemetry import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_carry_what_is_bound_and_only_inside() -> None:
    stream = io.StringIO()
    logs.set_up("json", "info", "local/driver", stream)
    with logs.about(job="shapes-001", micro_batch=3, policy_version=7):
        logs.logger().info("updated", loss=0.5)
    logs.logger().warning("after")
    inside, after = lines(stream)
    assert (inside["job"], inside["micro_batch"], inside["policy_version"]) == ("shapes-001", 3, 7)
    assert (inside["event"], inside["loss"], inside["level"]) == ("updated", 0.5, "info")
    assert inside["process"] == after["process"] == "local/driver"
    assert "job" not in after


def test_level_holds_for_own_lines_and_for_libraries() -> None:
    stream = io.StringIO()
    logs.set_up("json", "warning", "p", stream)
    logs.logger().info("quiet")
    logging.getLogger("somebody").info("quiet")
    logging.getLogger("somebody").warning("from %s", "a library")
    assert [line["event"] for line in lines(stream)] == ["from a library"]
    assert lines(stream)[0]["process"] == "p"


def test_an_exception_is_one_json_line() -> None:
    stream = io.StringIO()
    logs.set_up("json", "info", "p", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logs.logger().exception("failed")
    (line,) = lines(stream)
    assert "broken" in json.dumps(line["exception"])


def test_console_without_a_terminal_has_no_colours() -> None:
    stream = io.StringIO()
    logs.set_up("console", "info", "p", stream)
    logs.logger().info("hello", size=2)
    assert "hello" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_line_for_people_has_whole_seconds_and_no_name_that_stands_before_it() -> None:
    stream = io.StringIO()
    logs.set_up("console", "info", "local/driver", stream)
    logs.logger().info("hello", size=2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \[info +\] hello +size=2\n", stream.getvalue())


async def test_context_reaches_a_thread() -> None:
    stream = io.StringIO()
    logs.set_up("json", "info", "p", stream)
    with logs.about(job="j"):
        await asyncio.to_thread(logs.logger().info, "in a thread")
    assert lines(stream)[0]["job"] == "j"


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_format_or_level(form: str, level: str) -> None:
    with pytest.raises(ValueError, match=r"xml|loud"):
        logs.set_up(form, level, "p")
