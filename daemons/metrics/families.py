"""Every metric of every daemon: name, type, unit, labels, meaning. docs/metrics.md is made of these tables.

Owns the names. Invariant: a label takes values of a closed set, or of what a cluster has (nodes and slots); whatever is
outside of a closed set is `other`. No label holds a job, prompt, lease or session, but for the one series of
`digend_current_job_info`.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

OTHER = "other"

TASKS = (
    "prepare",
    "encode",
    "generate",
    "assist",
    "score",
    "update",
    "commit",
    "evaluate",
    "evaluate_score",
    "checkpoint",
    "reset",
)
WORKER_STATES = ("idle", "busy", "torpid", "lost")
ROLES = ("generator", "trainer", "reward")
QUEUES = ("sq", "uq", "jobs")

FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SLOW_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Family:
    """`name` without the `_total` that Prometheus gives counters."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = FAST_S


BUILD = Family("digend_build_info", "gauge", "", "always 1; the version that runs", ("version",))

DRIVER = (
    BUILD,
    Family("digend_event_loop_lag_seconds", "histogram", "seconds", "how late the event loop wakes a timer"),
    Family("digend_step_seconds", "histogram", "seconds", "one turn of the decision core"),
    Family("digend_search_seconds", "histogram", "seconds", "turns of the core in which a strategy searched"),
    Family("digend_search_states", "counter", "states", "states that searches looked at"),
    Family("digend_journal_commit_seconds", "histogram", "seconds", "one transaction of the journal, with its fsync"),
    Family("digend_queue_depth", "gauge", "entries", "what waits: fragments, micro-batches, jobs", ("queue",)),
    Family("digend_queue_oldest_seconds", "gauge", "seconds", "age of the oldest entry; absent when empty", ("queue",)),
    Family("digend_queue_bytes", "gauge", "bytes", "samples and trajectories of what waits", ("queue",)),
    Family("digend_leases", "gauge", "leases", "tasks that are under way", ("task",)),
    Family("digend_workers", "gauge", "workers", "workers by role and state", ("role", "state")),
    Family("digend_worker_up", "gauge", "", "1 where a worker gets leases, 0 where not", ("node", "role", "slot")),
    Family("digend_worker_heartbeat_age_seconds", "gauge", "seconds", "since its last", ("node", "role", "slot")),
    Family("digend_bytes_waiting", "gauge", "bytes", "messages that peers have not taken yet"),
    Family("digend_problems", "gauge", "", "lines that `digenctl status` shows as problems"),
    Family("digend_tasks", "counter", "tasks", "finished tasks", ("task",)),
    Family("digend_task_failures", "counter", "tasks", "failed tasks", ("task",)),
    Family("digend_worker_seconds", "counter", "seconds", "worker time by stage", ("role", "stage")),
    Family("digend_bubble_seconds", "counter", "seconds", "idle with work outstanding", ("role", "cause")),
    Family("digend_current_job_info", "gauge", "", "always 1; one series, of the running job", ("job", "name")),
    Family("digend_job_global_step", "gauge", "global steps", "closed global steps of the running job"),
    Family("digend_job_global_steps_planned", "gauge", "global steps", "those it will have"),
    Family("digend_job_policy_version", "gauge", "versions", "updates its weights have had"),
    Family("digend_job_incarnation", "gauge", "", "lives of its trainer"),
    Family(
        "digend_job_figure", "gauge", "see below", "newest of the last job that ran, as in metrics.jsonl", ("figure",)
    ),
)

WORKER = (
    BUILD,
    Family("digend_joined", "gauge", "", "1 while it has a session with the driver"),
    Family("digend_busy", "gauge", "", "1 while a task runs"),
    Family("digend_tasks", "counter", "tasks", "finished tasks", ("task",)),
    Family("digend_task_failures", "counter", "tasks", "failed tasks", ("reason",)),
    Family("digend_stage_seconds", "counter", "seconds", "time in tasks by stage", ("stage",)),
    Family("digend_samples", "counter", "samples", "samples of finished tasks", ("task",)),
    Family("digend_model_flops", "counter", "FLOP", "model operations of finished tasks", ("task",)),
    Family("digend_results_unacknowledged", "gauge", "results", "told and not yet acknowledged"),
    Family("digend_blob_held_bytes", "gauge", "bytes", "tensors held for others, on disk too"),
    Family("digend_blob_spooled_bytes", "gauge", "bytes", "of those, on disk"),
    Family("digend_blob_spool_limit_bytes", "gauge", "bytes", "so many may be on disk"),
    Family("digend_resident_bytes", "gauge", "bytes", "memory of the process"),
    Family("digend_gpu_clock_hertz", "gauge", "hertz", "SM clock; GPU metrics are absent without NVML"),
    Family("digend_gpu_free_bytes", "gauge", "bytes", "memory that nobody holds"),
    Family("digend_gpu_utilization_ratio", "gauge", "share", "of the last period in which a kernel ran"),
    Family("digend_gpu_power_watts", "gauge", "watts", "drawn"),
    Family("digend_gpu_temperature_celsius", "gauge", "celsius", "of the GPU"),
)

RECORDER = (
    BUILD,
    Family("digend_records_written", "counter", "records", "records that are on disk"),
    Family("digend_batches_waiting", "gauge", "batches", "batches of records that wait for the disk"),
    Family("digend_write_seconds", "histogram", "seconds", "one batch, its pictures included", (), SLOW_S),
    Family("digend_write_failures", "counter", "writes", "batches that the disk refused"),
    Family("digend_tracker_up", "gauge", "", "0 once a tracker failed", ("tracker",)),
)

DAEMONS = {"driver": DRIVER, "generator, trainer, reward": WORKER, "recorder": RECORDER}
