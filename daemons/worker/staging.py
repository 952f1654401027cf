"""Policy versions on their way to this worker: fetched in the background, checked, kept in host memory until retired.

Owns the staged tensors. Must not touch the engine's values: the swap is the compute thread's (`compute`). Invariant:
only versions that the driver asked for and has not retired are held; a version is reported staged only when every
tensor it was published with is here and binds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemons.worker.compute import StagedVersion
from daemons.worker.faults import explain
from digend.engines.protocols import BroadcastFailed, TaskFault
from digend.telemetry.logs import logger
from digend.wire.broadcasts import Broadcast, Transport
from digend.wire.refs import WeightsRef
from digend.wire.tasks import TaskError
from digend.wire.tensors import Array
from digend.wire.workers import Staged, StageFailed

log = logger()

Key = tuple[str, int, int]
RETRY_DELAYS_S = (0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMeans:
    """How versions are fetched, checked and reported."""

    pull: Callable[[WeightsRef, Sequence[str], Mapping[str, Array] | None], Awaitable[Mapping[str, Array]]]
    """A version, other workers that have pieces of it, and the tensors that its changes are told against."""
    receive: Callable[[WeightsRef, Broadcast, Mapping[str, Array] | None], Awaitable[Mapping[str, Array]]]
    """The same from a broadcast, of which this worker is a member; raises BroadcastFailed."""
    give_up: Callable[[WeightsRef], None]
    """A broadcast of this version ends, if it goes on."""
    free: Callable[[Iterable[str]], None]
    """Blobs that are not passed on any more."""
    check: Callable[[WeightsRef, Mapping[str, Array]], Awaitable[int]]
    report: Callable[[Key], None]
    """Called when a version became ready or failed; the shell then sends its `Staging.news`."""
    spawn: Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Staging:
    """Used from the event loop only."""

    def __init__(self, means: StageMeans) -> None:
        self._means = means
        self._working: dict[Key, asyncio.Task[None]] = {}
        self._ready: dict[Key, StagedVersion] = {}
        self._failed: dict[Key, TaskError] = {}

    def want(self, weights: WeightsRef, workers: Sequence[str] = (), place: Broadcast | None = None) -> None:
        """Begin to fetch a version, unless it is here or on its way; one that failed is tried anew, and a broadcast is
        given up where the version is wanted without."""
        key = (weights.job, weights.incarnation, weights.version)
        if key in self._ready:
            self._means.report(key)
        elif key in self._working:
            if place is None:
                self._means.give_up(weights)
        else:
            self._failed.pop(key, None)
            self._working[key] = self._means.spawn(f"stage {key}", self._stage(key, weights, workers, place))

    def get(self, job: str, incarnation: int, version: int) -> StagedVersion | None:
        return self._ready.get((job, incarnation, version))

    def newest(self, job: str) -> tuple[int, tuple[int, ...]]:
        """The newest incarnation of which versions are ready (-1: none), and those, for the inventory."""
        incarnation = max((key[1] for key in self._ready if key[0] == job), default=-1)
        return incarnation, tuple(sorted(key[2] for key in self._ready if key[:2] == (job, incarnation)))

    def retire(self, job: str, oldest_version: int) -> None:
        """Drop what is older than `oldest_version`, of every incarnation: a micro-batch may outlive its incarnation."""
        self._drop(lambda key: key[0] == job and key[2] < oldest_version)

    def end(self, job: str) -> None:
        self._drop(lambda key: key[0] == job)

    def news(self, session: str, only: Key | None = None) -> list[Staged | StageFailed]:
        """What there is to report, of one version or of all (to a new session), until it is retired."""
        ready = [
            Staged(
                session=session,
                job=job,
                incarnation=incarnation,
                version=version,
                num_bound=staged.num_bound,
                pull_ns=staged.pull_ns,
                check_ns=staged.check_ns,
                by=staged.by,
                fell_back=staged.fell_back,
            )
            for (job, incarnation, version), staged in self._ready.items()
            if only in (None, (job, incarnation, version))
        ]
        failed = [
            StageFailed(session=session, job=job, incarnation=incarnation, version=version, error=error)
            for (job, incarnation, version), error in self._failed.items()
            if only in (None, (job, incarnation, version))
        ]
        return [*ready, *failed]

    def _drop(self, doomed: Callable[[Key], bool]) -> None:
        for key in [key for key in self._working if doomed(key)]:
            self._working.pop(key).cancel()
        for staged in [staged for key, staged in self._ready.items() if doomed(key)]:
            self._means.free(blob.id for blob in staged.weights.blobs)
        self._ready = {key: staged for key, staged in self._ready.items() if not doomed(key)}
        self._failed = {key: error for key, error in self._failed.items() if not doomed(key)}

    async def _stage(self, key: Key, weights: WeightsRef, workers: Sequence[str], place: Broadcast | None) -> None:
        try:
            begun_ns = time.perf_counter_ns()
            tensors, by, fell_back = await self._fetch(weights, workers, place, self._before(weights))
            pulled_ns = time.perf_counter_ns()
            num_bound = await self._means.check(weights, tensors)
            checked_ns = time.perf_counter_ns()
            if not num_bound == len(tensors) == weights.num_tensors:
                raise TaskFault(
                    "weights",
                    f"policy version {weights.version}: {num_bound} of {len(tensors)} tensors bind, "
                    f"{weights.num_tensors} were published",
                )
            self._ready[key] = StagedVersion(
                weights=weights,
                tensors=tensors,
                num_bound=num_bound,
                pull_ns=pulled_ns - begun_ns,
                check_ns=checked_ns - pulled_ns,
                by=by,
                fell_back=fell_back,
            )
        except Exception as error:
            self._failed[key] = explain(error)
            log.warning("version not staged", job=key[0], version=key[2], error=str(error))
        finally:
            if self._working.get(key) is asyncio.current_task():
                del self._working[key]
            if key not in self._ready:
                self._means.free(blob.id for blob in weights.blobs)
        self._means.report(key)

    def _before(self, weights: WeightsRef) -> Mapping[str, Array] | None:
        if weights.changes is None:
            return None
        before = self._ready.get((weights.job, weights.incarnation, weights.changes.since))
        return before.tensors if before else None

    async def _fetch(
        self, weights: WeightsRef, workers: Sequence[str], place: Broadcast | None, before: Mapping[str, Array] | None
    ) -> tuple[Mapping[str, Array], Transport, str]:
        """All tensors of a version, how they came, and why no broadcast brought them."""
        fell_back = ""
        if place is not None:
            try:
                return await self._means.receive(weights, place, before), "broadcast", ""
            except BroadcastFailed as failed:
                fell_back = str(failed)
                log.warning("no broadcast, pulling", job=weights.job, version=weights.version, error=fell_back)
        return await self._pull(weights, workers, before), "pull", fell_back

    async def _pull(
        self, weights: WeightsRef, workers: Sequence[str], before: Mapping[str, Array] | None
    ) -> Mapping[str, Array]:
        """An owner that does not answer is asked again: it may be busy, or its address may just be moving."""
        for delay_s in RETRY_DELAYS_S:
            try:
                return await self._means.pull(weights, workers, before)
            except TaskFault as fault:
                if fault.error.reason != "blob_lost":
                    raise
                await asyncio.sleep(delay_s)
        return await self._means.pull(weights, workers, before)
