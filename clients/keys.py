"""Single keys from the terminal, without Enter. The terminal is as it was after the block."""

import select
import sys
import time
from contextlib import suppress
from typing import Any, Self


class Keys:
    """Used as a context manager. Without a terminal on stdin there are no keys, and `wait` just waits."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            import termios

            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """The key pressed within `seconds`, or ""."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else ""
