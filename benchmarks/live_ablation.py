"""The live ablation: real daemons on pinned cores, one run, what each part of the schedule is worth.

    python -m benchmarks.live_ablation [--case generation] [--prompts 16 32] [--steps 5] [--repeats 3] [--json FILE]

One cluster (a generator pinned to one core, a trainer to another) runs the same job under naive, +GAP, +TSP, +TAG,
+TCSS, colocated, and colocated with TSP, and prints a table: seconds a global step (median, the first left out), the
ratio to naive, the share of the ideal that the measured task times allow, what the model predicts, and bubble seconds.

Colocated runs on one core where the others have two, so its step is also shown halved, as if it scaled perfectly to
both; that is the fair and hardest comparison. Not a test; figures are ratios within one run on one machine.

In the case `update` all timesteps are trained, so that the trainer is the bottleneck and TAG and TCSS have nothing to
win; in the case `generation` two of eight are, so that it waits. With `--repeats` the variants take turns, so that what
the machine does meanwhile meets all of them; seconds are then medians over the repeats with their range.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from broker.schedule.ideal import ideal
from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from clients.api import Digend
from digend.wire.records import IdleRecord, Record, StepRecord, TaskRecord
from scripts.demo_cluster import ROOT, Cluster, running

JOB = ROOT / "configs/jobs/shapes-flow-grpo.toml"
NODE = ROOT / "configs/nodes/laptop.toml"
SAMPLES = 4

COMMON = (
    f"data.samples_per_prompt={SAMPLES}",
    "sampling.rollout_batch=4",
    "training.update_batch=4",
    "eval.enabled=false",
    "checkpoint.every=0",
)
CASES: Mapping[str, int] = {"update": 7, "generation": 2}
"""Trained timesteps, in one window: all seven that can be, so that an update is about as long as a rollout; or few."""

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "naive": ("schedule.partition=naive", "training.timestep_width=1", "schedule.strategy=never"),
    "+GAP": ("schedule.partition=gap", "training.timestep_width=1", "schedule.strategy=never"),
    "+TSP": ("schedule.partition=gap", "training.timestep_width=0", "schedule.strategy=never"),
    "+TAG": ("schedule.partition=gap", "training.timestep_width=0", "schedule.strategy=planned"),
    "+TCSS": (
        "schedule.partition=gap",
        "training.timestep_width=0",
        "schedule.strategy=planned",
        "schedule.staleness=0.5",
    ),
    "colocated": ("schedule.generators=[]", "training.timestep_width=1", "schedule.strategy=never"),
    "colocated+TSP": ("schedule.generators=[]", "training.timestep_width=0", "schedule.strategy=never"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds. `step`: median of a global step but the first; `parts`: median of a task by kind, per micro-batch.

    Of several runs: medians of theirs, and sums of `bubbles` and `worker_seconds`; `steps`: of each run.
    """

    name: str
    prompts: int
    step: float
    steps: Sequence[float]
    parts: Mapping[str, float]
    bubbles: Mapping[str, float]
    worker_seconds: float
    assisted: float


def measure(name: str, prompts: int, records: Sequence[Record]) -> Measured:
    """From a finished job's record stream."""
    steps = [record for record in records if isinstance(record.body, StepRecord)]
    ends = [record.at_ns for record in steps]
    bodies = [record.body for record in steps if isinstance(record.body, StepRecord)]
    spans = [(later - earlier) / 1e9 for earlier, later in pairwise(ends)]
    tasks: dict[str, list[float]] = {}
    bubbles: dict[str, float] = {}
    for record in records:
        body = record.body
        if isinstance(body, TaskRecord) and body.start_ns >= ends[0]:
            tasks.setdefault(body.task, []).append((body.end_ns - body.start_ns) / 1e9)
        elif isinstance(body, IdleRecord) and body.bubble and body.start_ns >= ends[0]:
            key = f"{body.worker.split('/')[1]}: {body.cause}"
            bubbles[key] = bubbles.get(key, 0.0) + (body.end_ns - body.start_ns) / 1e9
    return Measured(
        name=name,
        prompts=prompts,
        step=median(spans),
        steps=(median(spans),),
        parts={kind: median(times) for kind, times in tasks.items()},
        bubbles=bubbles,
        worker_seconds=2 * (ends[-1] - ends[0]) / 1e9,
        assisted=sum(body.assisted_micro_batches for body in bodies[1:]) / (len(bodies) - 1),
    )


def pooled(runs: Sequence[Measured]) -> Measured:
    """Of several runs of one variant."""
    steps = [each.step for each in runs]
    kinds = {kind for each in runs for kind in each.parts}
    waits = {key for each in runs for key in each.bubbles}
    return Measured(
        name=runs[0].name,
        prompts=runs[0].prompts,
        step=median(steps),
        steps=steps,
        parts={kind: median(each.parts[kind] for each in runs if kind in each.parts) for kind in sorted(kinds)},
        bubbles={key: sum(each.bubbles.get(key, 0.0) for each in runs) for key in sorted(waits)},
        worker_seconds=sum(each.worker_seconds for each in runs),
        assisted=sum(each.assisted for each in runs) / len(runs),
    )


def predicted(measured: Measured, assist: float) -> tuple[float, float]:
    """(seconds a step by the schedule model, by the ideal) for a run's own measured task times."""
    parts, micro_batches = measured.parts, 1 if measured.name == "naive" else measured.prompts
    times = Times.exact(
        generate=round(parts["generate"], 6),
        update=round(parts["update"], 6),
        assist=round(assist, 6) if measured.name in ("+TAG", "+TCSS") else None,
        score=round(parts.get("score", 0.0), 6),
        commit=round(parts["commit"], 6),
    )
    model = Model(times=times, servers=0)
    staleness = 0.5 if measured.name == "+TCSS" else 0.0
    strategy = strategy_of("planned" if measured.name in ("+TAG", "+TCSS") else "never")
    run = Run.of(Setup(model=model, micro_batches=micro_batches, steps=5, staleness=staleness))
    run.to_end(strategy)
    spans = [later - earlier for earlier, later in pairwise(run.commits)]
    return times.seconds(round(median(spans))), float(ideal(model, micro_batches) * times.unit)


@contextmanager
def pinned(cluster: Cluster) -> Iterator[Digend]:
    """The driver's client, with generator and trainer on a core each."""
    cores = sorted(os.sched_getaffinity(0))
    with Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        roles = [node for node in driver.nodes() if node.role in ("generator", "trainer")]
        for core, node in zip(cores, sorted(roles, key=lambda node: node.role), strict=False):
            for thread in Path(f"/proc/{node.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
        yield driver


def run(driver: Digend, name: str, prompts: int, steps: int, trained: int) -> Measured:
    wanted = (*COMMON, *VARIANTS[name], f"data.prompts_per_rollout={prompts}", f"training.global_steps={steps + 1}")
    window = (f"algorithm.options.window_size={trained}", f"algorithm.options.window_range=[0,{trained}]")
    job = driver.submit(JOB, overrides=[*wanted, *window, f"name=ablation-{prompts}"]).job
    view = driver.wait(job)
    if view.state != "completed":
        raise SystemExit(f"{job} is {view.state}: {view.reason}")
    return measure(name, prompts, list(driver.follow(job)))


def row(measured: Measured, others: Mapping[str, Measured]) -> str:
    """One line of the table. The ideal of what colocated runs can do is all the work on one core."""
    naive, colocated = others["naive"].step, others["colocated"].step
    colocated_name = measured.name.startswith("colocated")
    model, best = ("", "") if colocated_name else (f"{value:.2f}" for value in predicted(measured, assist_of(others)))
    share = "" if colocated_name else f"{float(best) / measured.step:.1%}"
    bubble = sum(measured.bubbles.values()) / measured.worker_seconds
    return (
        f"| {measured.prompts} | {measured.name} | {_spread(measured.steps)} | {naive / measured.step:.2f} | "
        f"{colocated / measured.step:.2f} | {colocated / 2 / measured.step:.2f} | {best} | {share} | {model} | "
        f"{bubble:.1%} | {measured.assisted:.1f} |"
    )


def _spread(steps: Sequence[float]) -> str:
    if len(steps) == 1:
        return f"{steps[0]:.2f}"
    return f"{median(steps):.2f} ({min(steps):.2f} - {max(steps):.2f})"


def assist_of(others: Mapping[str, Measured]) -> float:
    """h, from a run in which the trainer did generate; g where it never did."""
    for name in ("+TAG", "+TCSS"):
        if name in others and "assist" in others[name].parts:
            return others[name].parts["assist"]
    return others["+GAP"].parts["generate"]


HEAD = (
    "| P | schedule | s/step | x naive | x colocated (1 core) | x colocated (2 cores, perfect) | ideal s "
    "| share of ideal | predicted s | bubbles | TAG/step |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(CASES), default="update", help="what takes longer")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each variant, in turns")
    parser.add_argument("--prompts", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--steps", type=int, default=5, help="measured global steps a variant (one more is run)")
    parser.add_argument("--json", type=Path, help="also write what was measured")
    options = parser.parse_args(arguments)
    rows, raw = [], []
    with running(NODE) as cluster, pinned(cluster) as driver:
        for prompts in options.prompts:
            runs: dict[str, list[Measured]] = {name: [] for name in VARIANTS}
            for name in [name for _ in range(options.repeats) for name in VARIANTS]:
                runs[name].append(run(driver, name, prompts, options.steps, CASES[options.case]))
                print(f"P={prompts} {name}: {runs[name][-1].step:.2f} s a global step", file=sys.stderr, flush=True)
            found = {name: pooled(each) for name, each in runs.items()}
            rows += [row(measured, found) for measured in found.values()]
            raw += [
                {
                    "name": each.name,
                    "prompts": prompts,
                    "step": each.step,
                    "steps": list(each.steps),
                    "parts": dict(each.parts),
                    "bubbles": dict(each.bubbles),
                    "assisted": each.assisted,
                }
                for each in found.values()
            ]
    print("\n".join([HEAD, *rows]))
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
