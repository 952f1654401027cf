"""How a simulated worker stages policy versions: pulled, or from a broadcast where it is one of the members.

Behaves as the worker daemon does, in virtual time: a broadcast reaches all its members or none of them, and who is
left without the version once its time limit has passed pulls it. Must not know the core.
"""

from typing import TYPE_CHECKING

from broker.events import WeightsNotStaged, WeightsStaged
from broker.harness_world import InvariantBroken
from digend.wire.broadcasts import Broadcast, Transport
from digend.wire.refs import WeightsRef
from digend.wire.tasks import TaskError

if TYPE_CHECKING:
    from broker.harness_shell import Shell

PULL_AGAIN_NS = (500_000_000, 1_000_000_000, 2_000_000_000, 4_000_000_000)
"""How long to wait for an owner of weights that does not answer, before each further try."""
FAILED, LOST = "not all members came", "a member is gone"


class Intake:
    """One process's."""

    def __init__(self, shell: "Shell") -> None:
        self._shell = shell
        self._received: dict[str, WeightsRef] = {}
        """By blob: whose broadcast goes on."""

    def begin(self, weights: WeightsRef, place: Broadcast | None) -> None:
        host, shell = self._shell.host, self._shell
        soon_ns = host.now_ns + host.stage_ns()
        if place is not None:
            self._join(weights, place, soon_ns)
        elif self._received.pop(weights.blob.id, None):
            host.at(soon_ns, lambda: self._stage(weights, "pull", LOST))
        elif shell.engine.slot.role != "trainer":
            host.at(soon_ns, lambda: self._stage(weights, "pull"))

    def _join(self, weights: WeightsRef, place: Broadcast, soon_ns: int) -> None:
        host, shell = self._shell.host, self._shell
        if place.members[place.rank] != shell.name:
            raise InvariantBroken(f"{shell.name} is to be {place.members[place.rank]} of a broadcast")
        shell.engine.world.come(weights.store, place, shell)
        if place.rank > 0:
            self._received[weights.blob.id] = weights
            late_ns = host.now_ns + int(place.timeout_s * 1e9)
            host.at(soon_ns, lambda: self._receive(weights, place, late_ns))

    def say_staged(
        self, job: str, incarnation: int, version: int, num_bound: int, by: Transport = "pull", fell_back: str = ""
    ) -> None:
        shell = self._shell
        if shell.session is not None and shell.reachable:
            shell.host.say(
                WeightsStaged(
                    session=shell.session,
                    job=job,
                    incarnation=incarnation,
                    version=version,
                    num_bound=num_bound,
                    by=by,
                    fell_back=fell_back,
                )
            )

    def _receive(self, weights: WeightsRef, place: Broadcast, late_ns: int) -> None:
        if weights.blob.id not in self._received:
            return
        if self._shell.engine.world.are_there(weights.store, place):
            del self._received[weights.blob.id]
            self._stage(weights, "broadcast")
        else:
            self._shell.host.at(late_ns, lambda: self._give_up(weights))

    def _give_up(self, weights: WeightsRef) -> None:
        if self._received.pop(weights.blob.id, None):
            self._stage(weights, "pull", FAILED)

    def _stage(self, weights: WeightsRef, by: Transport, fell_back: str = "", tries: int = 0) -> None:
        """A version is here. A process that stands still does it when it goes on."""
        shell = self._shell
        if not shell.alive or weights.job not in shell.engine.loaded:
            return
        blob = shell.engine.world.find(weights.blob)
        if shell.frozen or (blob is None and tries < len(PULL_AGAIN_NS)):
            later_ns = shell.host.now_ns + PULL_AGAIN_NS[min(tries, len(PULL_AGAIN_NS) - 1)]
            again = tries if shell.frozen else tries + 1
            shell.host.at(later_ns, lambda: self._stage(weights, by, fell_back, again))
            return
        if blob is None:
            self._say_not_staged(weights, TaskError(reason="blob_lost", message="its owner is gone", retry=True))
            return
        bound = shell.host.bound_of(shell, weights)
        if isinstance(bound, TaskError):
            self._say_not_staged(weights, bound)
            return
        shell.engine.staged[weights.job, weights.incarnation, weights.version] = blob.digest
        self.say_staged(weights.job, weights.incarnation, weights.version, bound, by, fell_back)

    def _say_not_staged(self, weights: WeightsRef, error: TaskError) -> None:
        shell = self._shell
        if shell.session is not None and shell.reachable:
            shell.host.say(
                WeightsNotStaged(
                    session=shell.session,
                    job=weights.job,
                    incarnation=weights.incarnation,
                    version=weights.version,
                    error=error,
                )
            )
