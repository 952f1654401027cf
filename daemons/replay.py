"""`python -m daemons.replay JOURNAL`: runs a recorded journal again and compares what the core answers, byte for byte.

Reads only; a driver may be using the journal meanwhile. Exit code 0: all equal; 1: a batch differs (it is
named); 78: the file is no journal.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from broker.core import Core
from daemons.driver.journal import Journal
from daemons.driver.replay import verify
from daemons.driver.schema import JournalUnusable
from digend import __version__
from digend.exitcodes import ExitCode


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; prints one line a segment."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or given[0].startswith("-"):
        print("usage: python -m daemons.replay JOURNAL", file=sys.stderr)
        return ExitCode.USAGE
    try:
        journal = Journal(Path(given[0]), read_only=True)
        try:
            equal = [_segment(journal, segment, writer) for segment, writer in journal.segments()]
        finally:
            journal.close()
    except JournalUnusable as error:
        print(f"replay: {error}", file=sys.stderr)
        return ExitCode.BAD_CONFIG
    return ExitCode.OK if all(equal) else ExitCode.TARGET_FAILED


def _segment(journal: Journal, segment: int, writer: str) -> bool:
    count, divergence = verify(Core(), journal.batches(segment))
    written = "" if writer == __version__ else f", written by digend {writer}, replayed by {__version__}"
    print(f"segment {segment}: {count} batches give the same commands{written}")
    if divergence is not None:
        print(f"differs: {divergence}")
    return divergence is None


if __name__ == "__main__":
    sys.exit(main())
