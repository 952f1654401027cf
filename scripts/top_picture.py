"""A picture of `digenctl top` on a driver's running job: `python -m scripts.top_picture ADDRESS FILE.svg`."""

import argparse
from io import StringIO

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from clients.api import Digend
from clients.top_feed import Feed
from clients.top_lines import screen_text

THEME = TerminalTheme(
    (17, 21, 28),
    (214, 219, 226),
    [
        (17, 21, 28),
        (232, 88, 84),
        (76, 175, 106),
        (226, 184, 72),
        (82, 140, 236),
        (186, 104, 200),
        (72, 186, 190),
        (190, 196, 204),
    ],
    [
        (112, 120, 132),
        (255, 120, 112),
        (120, 214, 140),
        (250, 216, 112),
        (130, 176, 255),
        (226, 146, 240),
        (120, 232, 236),
        (240, 244, 248),
    ],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("file")
    parser.add_argument("--width", type=int, default=112)
    parser.add_argument("--height", type=int, default=14)
    parser.add_argument("--window", type=float, default=60.0)
    given = parser.parse_args()
    with Digend(given.address) as driver:
        frame = Feed(given.window).look(driver)
    console = Console(
        record=True, width=given.width, file=StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(screen_text(frame, given.width, given.height))
    console.save_svg(given.file, title="digenctl top", theme=THEME)


if __name__ == "__main__":
    main()
