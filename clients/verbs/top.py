"""`digenctl top`: driver, jobs, workers and their last minutes on one screen, again and again."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from clients import amounts
from clients.api import Digend
from clients.output import Output
from clients.verb import verb

if TYPE_CHECKING:
    from clients.top_feed import Feed, Frame

PATIENCE_S = 2.0
"""For one reply while the view runs: as long as a key may have to wait for a driver that is away."""

ALL_LINES = 1000
"""Of a frame that is printed: as high as it needs to be."""

EXAMPLE = """\
  digenctl top
  digenctl top --interval 0.5 --window 30
  digenctl top --once | head -20"""


@verb(EXAMPLE)
@click.option("--interval", type=amounts.Amount(0.1, 86400), default=1.0, show_default=True, metavar="SECONDS")
@click.option(
    "--window",
    type=amounts.Amount(1, 1e6),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How far back timelines and shares of bubbles go.",
)
@click.option("--once", is_flag=True, help="Print one frame and end; so does a pipe, or --json.")
def command(driver: Digend, output: Output, interval: float, window: float, once: bool) -> None:
    """Watch the driver, its jobs and its workers. q or Ctrl-C leaves; jobs and workers go on.

    A worker's row has its state, a timeline of the last minutes (the digit of a bubble is its cause), the share of
    bubbles in it, and what it does or waits for. A driver that is restarted is waited for.
    """
    from clients.top_feed import Feed

    feed = Feed(window)
    frame = feed.look(driver)
    if output.as_json:
        _document(output, frame)
    elif once or not output.on_terminal:
        _print(frame)
    else:
        _live(driver.address, feed, frame, interval)
        output.hint("left top; jobs and workers go on")


def _document(output: Output, frame: "Frame") -> None:
    output.document(status=frame.status, watched=frame.watched, waiting=frame.waiting, pieces=frame.pieces)


def _print(frame: "Frame") -> None:
    from shutil import get_terminal_size

    from rich.console import Console

    from clients.top_lines import frame_lines

    width = get_terminal_size().columns
    console = Console(width=width, highlight=False)
    for line in frame_lines(frame, width, ALL_LINES):
        console.print(line)


def _live(address: str, feed: "Feed", frame: "Frame", interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from clients.keys import Keys
    from clients.top_lines import screen_text

    console = Console(highlight=False)
    view = Live(console=console, screen=True, auto_refresh=False)
    try:
        with Digend(address, PATIENCE_S) as driver, Keys() as keys, view:
            while True:
                view.update(screen_text(frame, console.width, console.height), refresh=True)
                if keys.wait(interval) in ("q", "Q"):
                    return
                frame = _next(driver, feed, frame)
    except KeyboardInterrupt:
        return


def _next(driver: Digend, feed: "Feed", frame: "Frame") -> "Frame":
    from digend.net.client import DriverUnreachable, TimedOut

    try:
        return feed.look(driver)
    except (DriverUnreachable, TimedOut):
        return replace(frame, away="driver away, trying again; what is below is as it was")
