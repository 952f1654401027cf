"""Runs the demo's job in a cluster of its own and says what came of it: what `scripts/demo` starts after set-up.

Owns the options and the words. Must not know how a cluster is made. Invariant: the last line on stdout is the result,
and there is none unless the job completed.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts.demo_cluster import ROOT, DemoFailed, check_job, running, wait_for

JOB = ROOT / "configs/jobs/shapes-flow-grpo.toml"
NODES = ROOT / "configs/nodes"
REPORT_S = 30.0

HEADLINE = (("accuracy", "shapes_both.accuracy"), ("independent", "shapes_independent"))
"""What the last line calls the metrics of the demo's own job; where a job has none of them, its reward stands in."""

SET_HELP = "change a key of the job, such as training.global_steps=2; may be repeated"

QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the process: 0 where the job completed, 1 where not, 78 where it is not valid, 128 + n after signal n."""
    options = parse(arguments)
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        result = run(options)
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print(result, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Sees a reward rise on this machine.")
    parser.add_argument("--seed", type=int, help="another seed is another run (default: the job file's)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--colocated", action="store_true", help="one trainer does everything, without a generator")
    mode.add_argument("--dedicated-reward", action="store_true", help="a process of its own scores the samples")
    parser.add_argument("--job", type=Path, default=JOB, metavar="FILE", help=f"default: {JOB.relative_to(ROOT)}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=SET_HELP)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running afterwards")
    options = parser.parse_args(arguments)
    if not options.job.is_file():
        parser.error(f"there is no job file {options.job}")
    return options


def run(options: argparse.Namespace) -> str:
    """The demo from start to stop; returns the last line. Raises DemoFailed."""
    base, job = node_file(options), [str(options.job.resolve()), *overrides(options)]
    check_job(job)
    say(f"starting the processes of {base.relative_to(ROOT)} (some seconds each)")
    with running(base) as cluster:
        say(f"ready; look at it from another terminal: {ROOT}/.venv/bin/digenctl status --node {cluster.node}")
        cluster.run_job(job)
        detail = cluster.job()
        run_folder = cluster.runs / detail["job"]["id"]
        wait_for(lambda: is_told(run_folder, detail["num_records"]), REPORT_S)
        cluster.keep = options.keep
        if options.keep:
            say(f"still running; stop it with: kill {cluster.up.pid}")
    describe(detail, run_folder)
    return headline(detail, (run_folder / "report.html").relative_to(ROOT))


def node_file(options: argparse.Namespace) -> Path:
    if options.colocated:
        return NODES / "trainer-only.toml"
    return NODES / ("laptop-reward.toml" if options.dedicated_reward else "laptop.toml")


def overrides(options: argparse.Namespace) -> list[str]:
    """The options as `--set` of digenctl submit; those that were given with --set come last and win."""
    pairs = [] if options.seed is None else [f"seed={options.seed}"]
    pairs += ["schedule.generators=[]"] if options.colocated else []
    pairs += ["schedule.scoring=dedicated"] if options.dedicated_reward else []
    return [word for pair in [*pairs, *options.set] for word in ("--set", pair)]


def is_told(run_folder: Path, num_records: int) -> bool:
    """Whether the recorder has written all of the job; summary.json comes after report.html."""
    with suppress(OSError, ValueError, KeyError):
        return bool(json.loads((run_folder / "summary.json").read_bytes())["num_records"] >= num_records)
    return False


def describe(detail: dict[str, Any], run_folder: Path) -> None:
    """What changed and where to look."""
    from digend.telemetry.figures import in_order

    before, after = (evaluation(detail, label) for label in ("before", "after"))
    for name in [name for name in in_order(before) if name in after]:
        say(f"{name:<32} {before[name]:.3f} -> {after[name]:.3f}")
    for title, path in (
        ("pictures", run_folder / "samples" / "before-after.png"),
        ("curves", run_folder / "tensorboard"),
        ("report", run_folder / "report.html"),
        ("pipeline", Path(detail["pipeline"] or run_folder / "checkpoints")),
    ):
        say(f"{title:<9}{path}" + ("" if path.exists() else " (missing)"))


def headline(detail: dict[str, Any], report: Path) -> str:
    """The last line: metrics before and after, how much and how long, where the report is."""
    before, after = (evaluation(detail, label) for label in ("before", "after"))
    named = [(word, key) for word, key in HEADLINE if key in before and key in after]
    if not named and "reward" in before and "reward" in after:
        named = [("reward", "reward")]
    parts = [f"{word} {before[key]:.3f} -> {after[key]:.3f}" for word, key in named]
    steps = f"{detail['job']['global_step']} global steps in {detail['seconds']:.0f} s"
    return "demo: " + ", ".join([*parts, steps, f"report {report}"])


def evaluation(detail: dict[str, Any], label: str) -> dict[str, float]:
    """Metrics of the newest evaluation of that label; none where there was none."""
    found = [each["metrics"] for each in detail["evaluations"] if each["label"] == label]
    return {name: value for name, value in (found[-1] if found else {}).items() if value is not None}


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
