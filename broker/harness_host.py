"""What a simulated process needs of its simulation: virtual time, a way to the driver, how long things take."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.events import Event
from digend.wire.refs import WeightsRef
from digend.wire.tasks import ResultBody, TaskBody, TaskError

if TYPE_CHECKING:
    from broker.harness_shell import Shell


class Host(Protocol):
    """What a shell needs of its simulation."""

    now_ns: int

    def at(self, at_ns: int, action: Callable[[], None]) -> None: ...

    def say(self, event: Event) -> None:
        """A message of a worker on its way to the driver."""
        ...

    def greet(self, shell: "Shell") -> str | None:
        """HELLO; the session of the WELCOME, None where no driver is there."""
        ...

    def is_open(self, session: str) -> bool:
        """Whether the driver knows the session."""
        ...

    def task_ns(self, shell: "Shell", task: TaskBody) -> int: ...

    def switch_ns(self, shell: "Shell", task: TaskBody) -> int | None:
        """What the change of a trainer's mode before the task takes; None: there is none."""
        ...

    def stage_ns(self) -> int: ...

    def ranks_of(self, job: str) -> int: ...

    def answer_of(self, shell: "Shell", task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        """What is told of a task that ran well: the result, unless something was arranged."""
        ...

    def bound_of(self, shell: "Shell", weights: WeightsRef) -> int | TaskError: ...
