"""What the recorder shows: records on disk, how long writing takes, trackers that failed."""

from collections.abc import Mapping

from daemons.metrics.board import Board
from daemons.metrics.families import RECORDER


class RecorderMetrics:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self.board = Board(RECORDER)

    def looked(self, waiting: int, trackers_up: Mapping[str, bool]) -> None:
        """With every heartbeat: batches that wait for the disk, and the kinds of trackers."""
        self.board.set("digend_batches_waiting", waiting)
        self.board.replace("digend_tracker_up", {(name,): works for name, works in trackers_up.items()})

    def wrote(self, records: int, seconds: float) -> None:
        self.board.add("digend_records_written", records)
        self.board.observe("digend_write_seconds", seconds)

    def refused(self) -> None:
        """The disk took a batch not."""
        self.board.add("digend_write_failures", 1)
