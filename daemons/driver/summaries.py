"""What `show job` says: each job's record stream read as it is made, so that driver and run folder agree.

Owns one reader a job of the current segment. Must not know where records come from: replay, or a turn
just journalled.
"""

from dataclasses import replace

from broker.core import Core
from broker.views import job_view, job_views
from digend.telemetry.summary import Summary
from digend.wire.records import EvaluationRecord, Record, StepRecord
from digend.wire.views import JobDetail


class Summaries:
    """Follows the jobs of `core`."""

    def __init__(self, core: Core, readers: dict[str, Summary] | None = None, newest: str = "") -> None:
        """`readers`, `newest`: as `state` gave them."""
        self._core = core
        self._readers = readers if readers is not None else {}
        self._newest = newest

    def state(self) -> tuple[dict[str, Summary], str]:
        """All that was read so far."""
        return self._readers, self._newest

    def add(self, record: Record) -> None:
        """The next record of its job."""
        reader = self._readers.get(record.job)
        if reader is None:
            spec = self._core.has_job(record.job)
            steps = spec.num_global_steps if spec else 0
            reader = self._readers[record.job] = Summary(name=spec.name if spec else "", num_global_steps=steps)
        reader.add(record)
        if isinstance(record.body, StepRecord | EvaluationRecord):
            self._newest = record.job

    def newest(self) -> tuple[str, dict[str, float]]:
        """The job whose global step or evaluation was the last to be told, and its figures; "" where there is none."""
        reader = self._readers.get(self._newest)
        return (self._newest, reader.figures) if reader is not None else ("", {})

    def detail(self, job: str) -> JobDetail | None:
        """The job as the core sees it, with what its records add up to; None if the core does not know it."""
        known = self._core.state.jobs.get(job)
        reader = self._readers.get(job)
        if known is None or reader is None:
            return None
        return replace(reader.detail(), job=job_view(self._core.state, known))

    def details(self) -> list[JobDetail]:
        """All jobs of the core, oldest first."""
        found = (self.detail(job.id) for job in job_views(self._core.state))
        return [detail for detail in found if detail is not None]
