"""The trackers of one job, as its file chooses them.

Owns the choice, and which failures concern the run: a disk that refuses a file of the run folder does (OSError, the
batch is written again), a tracker that is somebody else's service does not.
"""

from collections.abc import Sequence
from pathlib import Path

from daemons.trackers.aside import Aside
from daemons.trackers.files import jsonl, tensorboard
from daemons.trackers.protocol import TrackedRun, Tracker
from daemons.trackers.wandb_tracker import WandbTracker
from digend.config.job import JobConfig
from digend.config.tracking import TrackingConfig
from digend.wire.records import Record


class Trackers:
    """Opened with all of the past. Every method raises OSError, where the disk refuses."""

    def __init__(self, folder: Path, config: JobConfig | None, past: Sequence[Record]) -> None:
        chosen = config.tracking if config else TrackingConfig.model_validate({})
        run = TrackedRun(
            job=folder.name,
            name=config.name if config else folder.name,
            folder=folder,
            config=config.model_dump(mode="json") if config else {},
        )
        self._trackers: dict[str, Tracker] = {}
        self._asides: dict[str, Aside] = {}
        for name in chosen.use:
            self._trackers[name] = self._made(name, chosen)
            self._trackers[name].start(run, past)

    @property
    def troubles(self) -> dict[str, str]:
        """Why trackers failed, by name."""
        return {name: aside.trouble for name, aside in self._asides.items() if aside.trouble}

    @property
    def up(self) -> dict[str, bool]:
        """Which work, by name."""
        return {name: name not in self.troubles for name in self._trackers}

    def log(self, records: Sequence[Record]) -> None:
        for tracker in self._trackers.values():
            tracker.log(records)

    def image(self, name: str, path: Path, record: Record) -> None:
        for tracker in self._trackers.values():
            tracker.image(name, path, record)

    def finish(self, state: str) -> None:
        for tracker in self._trackers.values():
            tracker.finish(state)

    def close(self, seconds: float) -> None:
        """The recorder ends; what is under way gets so long."""
        for aside in self._asides.values():
            aside.close(seconds)

    def _made(self, name: str, config: TrackingConfig) -> Tracker:
        if name == "jsonl":
            return jsonl()
        if name == "tensorboard":
            return tensorboard()
        self._asides[name] = Aside(name, WandbTracker(config))
        return self._asides[name]
