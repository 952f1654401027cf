"""What the open global step has cost so far: worker time, bubbles by cause, floating-point operations.

Owns the adding up. Knows no records. Invariant: time is counted from the step's start on, once, whichever way it was
spent; what is still open when the step closes is counted up to that instant here and from there on in the next step.
"""

from dataclasses import dataclass, field

NS = 1e-9


@dataclass(slots=True)
class StepClock:
    """`worker_ns`: time of each worker; `bubbles_ns`: idle time with work outstanding, by cause; `flops`: by task."""

    start_ns: int = 0
    running: bool = False
    """Before the first global step nothing is counted."""
    worker_ns: dict[str, int] = field(default_factory=dict)
    bubbles_ns: dict[str, int] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)

    def spend(self, worker: str, start_ns: int, end_ns: int, bubble: str = "") -> None:
        """Time of a worker up to now; `bubble` is its cause where it was one."""
        spent = end_ns - max(start_ns, self.start_ns)
        if spent <= 0 or not self.running:
            return
        self.worker_ns[worker] = self.worker_ns.get(worker, 0) + spent
        if bubble:
            self.bubbles_ns[bubble] = self.bubbles_ns.get(bubble, 0) + spent

    def compute(self, task: str, flops: float) -> None:
        """Operations of a finished task; they count in the step in which it finished."""
        if flops and self.running:
            self.flops[task] = self.flops.get(task, 0.0) + flops

    def seconds(self) -> float:
        return sum(self.worker_ns.values()) * NS
