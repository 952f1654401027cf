"""Processes killed and stopped at random instants of a job, several a job: it completes, exactly.

With `deterministic = true` and one generator the weights are those of an undisturbed run, bit for bit.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from tests.e2e.cluster import ROOT, Cluster, answers, environment, wait_until
from tests.e2e.run import assert_counted_once

pytestmark = pytest.mark.matrix

PROGRAMS = ("driver", "trainer-0", "generator-0", "reward-0", "recorder")
VARIANTS: tuple[tuple[str, ...], ...] = (
    (),
    ("schedule.scoring=dedicated",),
    ("schedule.generators=[]",),
    ("schedule.partition=naive", "eval.every=1"),
    ("training.updates_per_rollout=2",),
    ("checkpoint.every=1", "training.trainable=lora"),
)
FIRST_SEED = int(os.environ.get("DIGEND_SEED", "0"))
LAST_S = 12.0
STOPPED_S = (0.5, 4.0, 12.0)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> dict[tuple[str, ...], bytes]:
    """Weights of each variant, made when they are first asked for."""
    return {}


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 12))
def test_a_job_completes_whatever_dies(healthy: Cluster, undisturbed: dict[tuple[str, ...], bytes], seed: int) -> None:
    draw = random.Random(seed)
    variant = VARIANTS[seed % len(VARIANTS)]
    overrides = (
        "eval.samples=1",
        "training.deterministic=true",
        "schedule.task_retries=10",
        "training.global_steps=8",
        *variant,
    )
    if variant not in undisturbed:
        undisturbed[variant] = healthy.run(f"calm-{seed}", *overrides).weights()
    faults = sorted((draw.uniform(0, LAST_S), draw.choice(PROGRAMS), draw.random()) for _ in range(draw.randint(1, 3)))
    print(f"seed {seed}, {variant}: {faults}")
    healthy.submit(f"storm-{seed}", *overrides)
    strike(healthy, faults)
    wait_until(lambda: answers(healthy.driver), "the driver answers")
    run = healthy.completed(f"storm-{seed}")
    assert_counted_once(run, 8)
    assert run.weights() == undisturbed[variant]


def strike(cluster: Cluster, faults: Sequence[tuple[float, str, float]]) -> None:
    """(seconds after the submit, program, luck): killed, or stopped for a while where luck is small."""
    begun = time.monotonic()
    stopped: list[tuple[float, int]] = []
    for at, program, luck in faults:
        wait_until(lambda at=at: time.monotonic() - begun >= at, "it is time")  # type: ignore[misc]
        with suppress(AssertionError, ProcessLookupError):
            pid = cluster.pid(program)
            if luck < 0.4:
                os.kill(pid, signal.SIGSTOP)
                stopped.append((time.monotonic() + STOPPED_S[int(luck * 7.5)], pid))
            else:
                os.kill(pid, signal.SIGKILL)
    for until, pid in sorted(stopped):
        wait_until(lambda until=until: time.monotonic() >= until, "it is time")  # type: ignore[misc]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_and_the_journal_of_it_all_replays(healthy: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daemons.replay", str(healthy.journal)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
