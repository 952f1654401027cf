"""A plausible run, made up: the record stream of a small job with everything in it that a real one may have.

Seeded; the pictures its evaluations name can be pulled from `PictureBook`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.recorder.pictures import Film, PicturesLost
from digend.wire.records import (
    CheckpointRecord,
    Decision,
    DriftRecord,
    EvalGroup,
    EvaluationRecord,
    IdleRecord,
    JobState,
    Notice,
    Record,
    RecordBody,
    RestartRecord,
    StepRecord,
    TaskFailure,
    TaskRecord,
    WorkerState,
)
from digend.wire.refs import BlobRef
from digend.wire.tasks import Receipt

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND
GENERATORS = ("local/generator/0", "local/generator/1")
TRAINER = "local/trainer/0"
COLOURS = {"red": (214, 64, 54), "green": (72, 160, 92), "blue": (58, 102, 190), "yellow": (226, 190, 64)}
SHAPES = ("circle", "square", "triangle")

JOB_TOML = """name = "shapes"
seed = 7

[model]
family = "flux"
path = "/models/shapes-flux"

[sampling]
height = 16
width = 16
num_timesteps = 8
kernel = "flow_sde"
noise_level = 0.7

[data]
prompts = "/jobs/prompts.txt"
prompts_per_rollout = 6
samples_per_prompt = 24

[training]
global_steps = 22
learning_rate = 3e-4

[[rewards]]
name = "shapes_both"
"""


@dataclass(slots=True)
class Writer:
    """Numbers the records of one job."""

    job: str
    records: list[Record] = field(default_factory=list)

    def add(self, at_ns: int, body: RecordBody) -> None:
        self.records.append(Record(job=self.job, seq=len(self.records), at_ns=at_ns, body=body))


def plausible_run(
    *, job: str = "shapes-1", seed: int = 7, num_steps: int = 22, every: int = 5, num_prompts: int = 12
) -> list[Record]:
    """Two generators, one trainer, one failed task, one restart, evaluations before, during and after."""
    chance = random.Random(seed)
    writer = Writer(job)
    now = START
    writer.add(now, JobState(state="queued"))
    now += SECOND // 5
    writer.add(now, JobState(state="preparing", reason="workers load the model"))
    for worker in (*GENERATORS, TRAINER):
        writer.add(now + 6 * SECOND, _task(worker, "prepare", now, 6 * SECOND, [("load", 0.98)]))
    now += 6 * SECOND
    writer.add(now, JobState(state="running"))
    now = _evaluate(writer, chance, now, 0, num_steps, "before", 8, num_prompts)
    for step in range(1, num_steps + 1):
        now = _global_step(writer, chance, now, step, num_steps)
        if step == num_steps // 2:
            now = _restart(writer, now, step)
        if step % every == 0 and step < num_steps:
            now = _evaluate(writer, chance, now, step, num_steps, "during", 4, num_prompts)
            writer.add(now, _checkpoint(step, None))
    now = _evaluate(writer, chance, now, num_steps, num_steps, "after", 8, num_prompts)
    writer.add(now + SECOND // 3, _task(TRAINER, "checkpoint", now, SECOND // 3, [("checkpoint", 0.97)]))
    for worker in GENERATORS:
        writer.add(now + SECOND // 3, _idle(worker, now, now + SECOND // 3, "checkpoint"))
    now += SECOND // 3
    writer.add(now, _checkpoint(num_steps, "checkpoints/final/pipeline"))
    writer.add(now, JobState(state="completed"))
    return writer.records


def _checkpoint(step: int, pipeline: str | None) -> CheckpointRecord:
    return CheckpointRecord(
        global_step=step,
        version=step,
        incarnation=0,
        path=f"checkpoints/step-{step:06d}",
        digest="ab" * 16,
        pipeline=pipeline,
    )


def _task(
    worker: str,
    task: str,
    start: int,
    length: int,
    stages: Sequence[tuple[str, float]],
    *,
    step: int = -1,
    micro_batch: int = -1,
    num_samples: int = 0,
) -> TaskRecord:
    """`stages` are shares of the interval; what they leave is dispatch."""
    parts = tuple((name, int(share * length)) for name, share in stages)
    total = sum(duration for _, duration in parts)
    return TaskRecord(
        worker=worker,
        task=task,
        lease=f"1.{start % 9973}",
        start_ns=start,
        end_ns=start + length,
        receipt=Receipt(total_ns=total, stages=parts, num_samples=num_samples),
        global_step=step - 1,
        version=step - 1,
        micro_batch=micro_batch,
        num_samples=num_samples,
    )


def _idle(worker: str, start: int, end: int, cause: str, bubble: bool = False) -> IdleRecord:
    return IdleRecord(worker=worker, start_ns=start, end_ns=end, cause=cause, bubble=bubble)


def _global_step(writer: Writer, chance: random.Random, now: int, step: int, num_steps: int) -> int:
    free = dict.fromkeys(GENERATORS, now)
    done = []
    for batch in range(6):
        worker = min(free, key=lambda name: free[name])
        length = int(chance.uniform(0.75, 0.95) * (1.3 if worker.endswith("1") else 1.0) * SECOND)
        generated = _task(
            worker,
            "generate",
            free[worker],
            length,
            [("generate", 0.9), ("decode", 0.06)],
            step=step,
            micro_batch=batch,
            num_samples=24,
        )
        scored = _task(
            worker,
            "score",
            free[worker] + length,
            SECOND // 8,
            [("score", 0.9)],
            step=step,
            micro_batch=batch,
            num_samples=24,
        )
        free[worker] += length + SECOND // 8
        done.append((free[worker], batch, (generated, scored)))
    events: list[tuple[int, RecordBody]] = [(body.end_ns, body) for _, _, bodies in done for body in bodies]
    trainer = now
    for ready, batch, _ in sorted(done, key=lambda item: item[0]):
        if ready > trainer:
            events.append((ready, _idle(TRAINER, trainer, ready, "no scored micro-batch", True)))
            events.append((trainer, Decision(strategy="never", answer="WAIT", pending=6 - batch, ready=0)))
        begin = max(ready, trainer)
        length = int(chance.uniform(0.5, 0.6) * SECOND)
        update = _task(
            TRAINER, "update", begin, length, [("fetch", 0.02), ("update", 0.95)], step=step, micro_batch=batch
        )
        events.append((begin + length, update))
        trainer = begin + length
    commit = _task(TRAINER, "commit", trainer, SECOND // 4, [("optimizer", 0.3), ("publish", 0.6)], step=step)
    end = trainer + SECOND // 4
    events.append((end, commit))
    events += [(end, _idle(worker, at, end, "global step waits for updates", True)) for worker, at in free.items()]
    for at, body in sorted(events, key=lambda item: item[0]):
        writer.add(at, body)
    writer.add(end, _step_record(chance, step, num_steps, (end - now) / SECOND))
    return end


def _step_record(chance: random.Random, step: int, num_steps: int, seconds: float) -> StepRecord:
    level = 0.62 + 0.25 * (1 - (1 - step / num_steps) ** 2) + chance.gauss(0, 0.02)
    return StepRecord(
        global_step=step,
        version=step,
        incarnation=0 if step <= num_steps // 2 else 1,
        seconds=seconds,
        reward_mean=level,
        reward_std=0.18 + chance.gauss(0, 0.01),
        components={"accuracy": level + 0.03, "sharpness": 0.5 - 0.004 * step},
        num_samples=144,
        num_masked=1 if step == 9 else 0,
        num_selected=143 if step == 9 else 144,
        num_groups=6,
        num_dropped_groups=0,
        num_zero_std_groups=int(chance.random() < 0.3),
        z0=432,
        z=429 if step == 9 else 432,
        loss=-0.01 + chance.gauss(0, 0.004),
        clip_fraction=0.04 + 0.1 * chance.random(),
        ratio_mean=1.0 + chance.gauss(0, 0.002),
        max_abs_log_ratio=0.02 + 0.05 * chance.random(),
        first_max_abs_log_ratio=1e-7 * (1 + chance.random()),
        kl=0.0,
        gradient_norm=float("nan") if step == 13 else 0.4 + 0.3 * chance.random(),
        learning_rate=3e-4,
        stale_micro_batches=0,
        assisted_micro_batches=0,
        skipped="the gradient is not finite" if step == 13 else None,
        drift=tuple(
            DriftRecord(by=by, name=name, num_pairs=72, mean=1e-8, max=scale * (1 + step % 3))  # type: ignore[arg-type]
            for by, names in (("worker", GENERATORS), ("timestep", ("0", "1", "2")), ("origin", ("generator",)))
            for name, scale in zip(names, (6e-8, 1.2e-7, 2e-7), strict=False)
        ),
    )


def _restart(writer: Writer, now: int, step: int) -> int:
    end = now + 4 * SECOND
    writer.add(now + SECOND, WorkerState(worker=TRAINER, role="trainer", state="lost", reason="no heartbeat for 15 s"))
    writer.add(
        now + SECOND,
        TaskFailure(
            worker=GENERATORS[0],
            task="generate",
            reason="blob_lost",
            message="blob 41: local/trainer/0 did not answer",
            global_step=step,
            micro_batch=2,
        ),
    )
    writer.add(now + SECOND, RestartRecord(incarnation=1, global_step=step, reason="the trainer was lost"))
    writer.add(now + SECOND, Notice(level="warning", message="2 micro-batches of incarnation 0 discarded"))
    writer.add(end, WorkerState(worker=TRAINER, role="trainer", state="joined"))
    writer.add(end, _idle(TRAINER, now, now + SECOND, "lost commit: no heartbeat"))
    for worker in GENERATORS:
        writer.add(end, _idle(worker, now, end, "no trainer"))
    return end


def _evaluate(
    writer: Writer,
    chance: random.Random,
    now: int,
    step: int,
    num_steps: int,
    label: str,
    num_samples: int,
    num_prompts: int,
) -> int:
    begin, free = now, dict.fromkeys(GENERATORS, now)
    share = step / num_steps
    groups = []
    for index, text in enumerate(prompts(num_prompts)):
        worker = GENERATORS[index % 2]
        length = int(0.3 * SECOND)
        stages = [("generate", 0.88), ("decode", 0.08)]
        writer.add(
            free[worker] + length,
            _task(worker, "evaluate", free[worker], length, stages, step=step + 1, num_samples=num_samples),
        )
        free[worker] += length
        gain = 0.35 * share if index % 5 != 4 else -0.12 * share
        rewards = [min(max(chance.gauss(0.55 + gain, 0.15), 0.0), 1.0) for _ in range(num_samples)]
        blob = BlobRef(
            owner=f"ipc:///run/{worker}",
            instance=f"instance-{worker}",
            id=f"{step}-{index}",
            num_bytes=num_samples * 768,
            digest=f"{step:04x}{index:04x}",
        )
        masked: list[float | None] = [*rewards]
        if index == 3:
            masked[-1] = None
        groups.append(EvalGroup(prompt=f"p{index:03d}", text=text, blob=blob, rewards=tuple(masked)))
    now = max(free.values())
    writer.add(now, _idle(TRAINER, begin, now, "evaluation"))
    for worker, at in free.items():
        if at < now:
            writer.add(now, _idle(worker, at, now, "evaluation"))
    known = [reward for group in groups for reward in group.rewards if reward is not None]
    metrics = {
        "accuracy": 0.736 + 0.13 * share,
        "independent": 0.737 + 0.135 * share,
        "diversity": 0.312 - 0.05 * share,
        "reward": sum(known) / len(known),
    }
    writer.add(
        now,
        EvaluationRecord(
            global_step=step,
            version=step,
            incarnation=0 if step <= num_steps // 2 else 1,
            label=label,
            metrics=metrics,
            num_samples=num_samples * num_prompts,
            seconds=(now - begin) / SECOND,
            groups=tuple(groups),
        ),
    )
    return now


def prompts(num: int) -> list[str]:
    texts = [f"a {colour} {shape} on the left" for colour in COLOURS for shape in SHAPES]
    return [texts[index % len(texts)] + (f", number {index}" if index >= len(texts) else "") for index in range(num)]


class PictureBook:
    """Pictures of the run: shapes that get cleaner with the global step. `lost` names instances that died."""

    def __init__(self, *, lost: Sequence[str] = (), num_frames: int = 0) -> None:
        self.lost = set(lost)
        self.num_pulls = 0
        self._num_frames = num_frames

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        self.num_pulls += 1
        if ref.instance in self.lost:
            raise PicturesLost(f"{ref.owner} did not answer for {timeout_s:.1f} s")
        step, index = (int(part) for part in ref.id.split("-"))
        return {name: self._film(step, index, int(name.split("/")[1])) for name in names}

    def _film(self, step: int, index: int, sample: int) -> Film:
        frames = [self._picture(step, index, sample, frame) for frame in range(max(self._num_frames, 1))]
        return np.stack(frames) if self._num_frames else frames[0]

    def _picture(self, step: int, index: int, sample: int, frame: int) -> Film:
        rng = np.random.default_rng([index, sample])
        size = 16
        colour = list(COLOURS.values())[(index // len(SHAPES)) % len(COLOURS)]
        ys, xs = np.mgrid[0:size, 0:size] / size
        x, y = 0.3 + 0.1 * rng.random() + 0.02 * frame, 0.35 + 0.3 * rng.random()
        inside = {
            0: (xs - x) ** 2 + (ys - y) ** 2 < 0.05,
            1: (abs(xs - x) < 0.2) & (abs(ys - y) < 0.2),
            2: (abs(xs - x) < (ys - y + 0.22) * 0.6) & (ys < y + 0.22),
        }[index % len(SHAPES)]
        ground = np.full((size, size, 3), (238, 236, 230), dtype=np.float64)
        ground[inside] = colour
        noise = rng.normal(0, 70 * max(1 - step / 24, 0.08), ground.shape)
        return (ground + noise).clip(0, 255).astype(np.uint8).transpose(2, 0, 1)
