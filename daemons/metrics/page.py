"""Writes docs/metrics.md from the tables of figures and metrics: `python -m daemons.metrics.page [FOLDER]`.

A program that nothing imports but its test. Invariant: the page holds every name, and says nothing of it that the
tables do not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from daemons.metrics.families import DAEMONS, QUEUES, ROLES, TASKS, WORKER_STATES, Family
from digend.engines.peaks import PEAKS
from digend.telemetry.figures import BUBBLE_CAUSES, EVALUATION_FIGURES, STEP_FIGURES, Figure

GENERATED = "<!-- Made by `python -m daemons.metrics.page` from the code; change that, not this page. -->"

INTRO = """# Figures and metrics

Two sets of numbers. *Figures* are of one global step or one evaluation of a job: they are what was trained. *Metrics*
are of a daemon at this instant, for Prometheus: they are how the machine runs. Names are stable: a new meaning gets a
new name.

## Figures

In `runs/ID/metrics.jsonl` (one line a global step and one an evaluation), in TensorBoard and W&B under the same
names, as curves in the report, in `digenctl show job ID --metrics`, and as `digend_job_figure{figure="NAME"}` of the
driver. A figure that is not known is absent. After a roll-back to a checkpoint, global steps since then come again in
`metrics.jsonl`, under a larger `incarnation`: of lines of one global step the one with the largest counts. A `*`
stands for what the job defines.
"""

COMPUTE = """### Operations and utilisation

torch counts the floating-point operations of the model's forward and backward passes (`FlopCounterMode`), once for
each shape, on a pass of one sample that is thrown away; kernels that it cannot see count as nothing, and so do
encoders, the VAE and rewards. What gradient checkpointing recomputes is not counted. Tasks count in the global step
in which they end.

Utilisation divides by what the devices of all generators and the trainer could have done in that time, idle or not.
The peak of a device is `peak_flops` of its table in the [node file](node-file.md), else that of its name and the
job's dtype in the table below (dense; half precision accumulates in float32; float32 without TF32). On a CPU, on a
GPU that is not listed and on a part of one (MIG) it is not known, and then there is speed and no utilisation. No GPU
has seen any of this yet.
"""

METRICS = """## Metrics

`[metrics]` in the [node file](node-file.md) switches them on: each daemon of the box then serves `/metrics` on a port
of its own, on this machine only, and says so in its log and in `STATE/metrics/ROLE-SLOT.json`. Without the table
there is no socket. Nobody is asked who they are, so another `host` than the default shows these numbers to whoever
reaches it.

Labels take values of closed sets, and what a daemon does not know is `other`. No label holds the id of a job, a
prompt, a lease or a session, but for the one series of `digend_current_job_info`. At most 128 figures of a job are
shown.

```toml
[metrics]        # in the node file
port = 9460      # the driver; the recorder has 9461, the trainer 9462, then generators, then rewards. 0: free ports
```

```yaml
scrape_configs:  # in prometheus.yml; finds every daemon of the box with its node, role and slot as labels
  - job_name: digend
    scrape_interval: 5s
    file_sd_configs:
      - files: [/var/lib/digend/metrics/*.json]
```

Worth a graph: `rate(digend_bubble_seconds_total[5m])` by `cause` (workers that wait, and for whom),
`digend_job_figure{figure="reward/mean"}`, `sum by (stage) (rate(digend_worker_seconds_total[5m]))` (how many workers
are at what), `histogram_quantile(0.99, rate(digend_event_loop_lag_seconds_bucket[5m]))` (a driver that cannot keep
up). Worth an alarm: `digend_worker_up == 0`, `digend_problems > 0`, `digend_tracker_up == 0`,
`increase(digend_task_failures_total[15m]) > 0`.
"""


def metrics_page() -> str:
    return "\n".join([GENERATED, "", *_figures(), *_metrics(), ""])


def _figures() -> Iterator[str]:
    yield INTRO
    yield from ("### Of a global step", "", *_figure_rows(STEP_FIGURES), "")
    yield f"Causes of bubbles: {', '.join(BUBBLE_CAUSES)} (in names with `_` for blanks)."
    yield from ("", "### Of an evaluation", "", *_figure_rows(EVALUATION_FIGURES), "", COMPUTE)
    yield "| GPU, as CUDA calls it | half | float32 | float64 | source |"
    yield "|---|---|---|---|---|"
    for peak in PEAKS:
        name = peak.name.replace("|", "` or `")
        numbers = " | ".join(
            f"{value:g}" if value else "not known" for value in (peak.half, peak.float32, peak.float64)
        )
        half = "" if peak.bfloat16 else " (no bfloat16)"
        yield f"| `{name}`{half} | {numbers} | {peak.source} |"
    yield "\nIn 1e12 operations a second.\n"


def _figure_rows(figures: tuple[Figure, ...]) -> Iterator[str]:
    yield "| name | unit | meaning |"
    yield "|---|---|---|"
    for figure in figures:
        yield f"| `{figure.name}` | {figure.unit} | {figure.meaning} |"


def _metrics() -> Iterator[str]:
    yield METRICS
    for daemon, families in DAEMONS.items():
        yield from (
            f"### {daemon.capitalize()}",
            "",
            "| name | type | unit | labels | meaning |",
            "|---|---|---|---|---|",
        )
        yield from (_row(family) for family in families)
        yield ""
    yield from ("### Values of labels", "", "| label | values |", "|---|---|")
    for label, values in (("role", ROLES), ("task", TASKS), ("state", WORKER_STATES), ("queue", QUEUES)):
        yield f"| `{label}` | {', '.join(values)} |"
    yield f"| `cause` | {', '.join(BUBBLE_CAUSES)} |"
    yield "| `stage` | as in the report's table of seconds; `idle` and `bubble` where a worker had no task |"
    yield "| `node`, `slot` | as in the node files |"


def _row(family: Family) -> str:
    name = family.name + ("_total" if family.kind == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{name}` | {family.kind} | {family.unit} | {labels} | {family.meaning} |"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else Path("docs")
    (folder / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
