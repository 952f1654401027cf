"""A slow judge: is the wait named, and does a global step last as long as `digenctl simulate` says?

    python -m benchmarks.slow_judge [--judge 2.0] [--concurrency 1 8] [--steps 3] [--check 0.1]

A cluster of real daemons runs the demo's model with a reward process that asks a service (`http_service`); the service
sleeps for `--judge` seconds a sample. Each job's task times, as its records have them, are fed to `digenctl simulate`,
and its global steps are compared with what that prints, the first left out. Then what `digenctl explain` says.

Sleeping takes no core, so other load moves the figures little while the judge is the bottleneck. `--check` ends with 1
where a step is off by more than that share, or where `explain` does not name the wait for rewards.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean

from benchmarks.live_ablation import JOB, Measured, measure
from clients.api import Digend
from digend.wire.records import StepRecord
from scripts.demo_cluster import ROOT, Cluster, running

NODE = ROOT / "configs/nodes/laptop-reward.toml"
PROMPTS, SAMPLES = 4, 8
WAIT = "waiting for reward"
PARTS = ("generate", "update", "score", "commit")

COMMON = (
    f"data.prompts_per_rollout={PROMPTS}",
    f"data.samples_per_prompt={SAMPLES}",
    "eval.enabled=false",
    "checkpoint.every=0",
    "schedule.scoring=dedicated",
    "schedule.strategy=never",
    "rewards[0].name=http_service",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Seconds. `step`, `simulated`: mean of a global step but the first; `explained`: what `digenctl explain` says."""

    concurrency: int
    measured: Measured
    step: float
    simulated: float
    p95: float
    explained: str

    @property
    def off(self) -> float:
        """Share by which the step is longer than simulated; negative: shorter."""
        return self.step / self.simulated - 1

    @property
    def named(self) -> bool:
        return WAIT in self.explained


@contextmanager
def judge(seconds: float) -> Iterator[str]:
    """The example service with that pause, and its address."""
    command = [sys.executable, str(ROOT / "examples/reward_service.py"), "--port", "0", "--pause", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise AssertionError("it was started with a pipe")
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def run(cluster: Cluster, url: str, concurrency: int, steps: int, judge_s: float) -> Judged:
    options = f'{{urls=["{url}"], concurrency={concurrency}, timeout_s={judge_s + 20}, deadline_s={judge_s + 40}}}'
    wanted = (*COMMON, f"rewards[0].options={options}", f"training.global_steps={steps + 1}", "schedule.lease_s=120")
    with Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        job = driver.submit(JOB, overrides=[*wanted, f"name=judge-{concurrency}"]).job
        view = driver.wait(job)
        if view.state != "completed":
            raise SystemExit(f"{job} is {view.state}: {view.reason}")
        records = list(driver.all_records(job))
    measured = measure(f"concurrency {concurrency}", PROMPTS, records)
    ends = [record.at_ns for record in records if isinstance(record.body, StepRecord)]
    last = [record.body for record in records if isinstance(record.body, StepRecord)][-1]
    return Judged(
        concurrency=concurrency,
        measured=measured,
        step=(ends[-1] - ends[0]) / 1e9 / steps,
        simulated=simulated(measured, steps + 1),
        p95=last.components["http_service.latency_p95_s"],
        explained=digenctl("explain", job, "--node", str(cluster.node)),
    )


def simulated(measured: Measured, steps: int) -> float:
    """Seconds a step, the first left out, as `digenctl simulate` makes them of a job's task times."""
    given = {kind: f"{measured.parts[kind]:.6f}" for kind in PARTS}
    times = [word for kind, value in given.items() for word in (f"--{kind}", value)]
    told = digenctl(
        "simulate",
        *("--micro-batches", str(PROMPTS), "--scoring", "dedicated", "--servers", "1", "--strategy", "never"),
        *("--steps", str(steps), "--json", *times),
    )
    makespans: list[float] = json.loads(told)["makespans"]
    return mean(makespans[1:])


def digenctl(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "clients", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


HEAD = (
    "| concurrency | generate s | score s | update s | step s | simulated s | off | p95 of a reply s |\n"
    + "|---" * 8
    + "|"
)


def row(each: Judged) -> str:
    parts = each.measured.parts
    times = (parts["generate"], parts["score"], parts["update"], each.step, each.simulated)
    told = " | ".join(f"{seconds:.3f}" for seconds in times)
    return f"| {each.concurrency} | {told} | {each.off:+.1%} | {each.p95:.3f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", type=float, default=2.0, metavar="S", help="seconds a score takes")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8], metavar="N", help="scores at a time")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="measured global steps (one more is run)")
    parser.add_argument("--check", type=float, metavar="SHARE", help="the largest share that a step may be off")
    options = parser.parse_args(arguments)
    with running(NODE) as cluster, judge(options.judge) as url:
        found = [run(cluster, url, each, options.steps, options.judge) for each in options.concurrency]
    print("\n".join([HEAD, *(row(each) for each in found)]))
    for each in found:
        lines = [line for line in each.explained.splitlines() if WAIT in line or "shorten    reward" in line]
        print(f"\ndigenctl explain, concurrency {each.concurrency}:", *lines, sep="\n  ")
    wrong = [each for each in found if options.check is not None and (abs(each.off) > options.check or not each.named)]
    for each in wrong:
        print(f"concurrency {each.concurrency}: off by {each.off:+.1%}, wait named: {each.named}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
