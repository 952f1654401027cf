"""What it costs to move training state to host memory for TAG and back, and that nothing of it changes on the way.

    python -m benchmarks.tag_switch [--device cpu] [--width 512] [--repeats 9] [--no-live]

First the engine alone: the demo's FLUX transformer at a larger width, random, with every kind of training state; its
checksums before offloading, while it waits and after it is back; seconds of a switch (medians with range), and what
size over bandwidth predicts, the bandwidth being that of one plain copy of 256 MiB in the same process and direction.
Then real daemons: the demo with updates so short that TAG pays, `strategy = "planned"`, `tag_memory = "offload"`; the c
that each search took against what switches then took. Not a test; seconds are of one machine, ratios travel better.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NoReturn

import torch

from daemons.worker.context import TaskContext
from digend.config.job import JobConfig
from digend.engines.jobs import load_job
from digend.engines.offloading import checksum, offloading_of, training_state
from digend.engines.training import Trainer
from digend.plugins import load_object
from digend.wire.records import Decision, Record, TaskRecord
from digend.wire.tasks import OFFLOAD, RESTORE, PrepareTask
from scripts.demo_cluster import ROOT, running

MODEL = ROOT / "configs/models/shapes-flux"
JOB = ROOT / "configs/jobs/shapes-flow-grpo.toml"
NODE = ROOT / "configs/nodes/laptop.toml"
PLAIN_COPY = 1 << 28
KINDS: dict[str, dict[str, dict[str, object]]] = {
    "LoRA of rank 32, average": {"training": {"trainable": "lora", "ema_decay": 0.9}},
    "full, float32": {},
    "full, float32, average": {"training": {"ema_decay": 0.9}},
    "full, bfloat16, average": {"training": {"ema_decay": 0.9}, "model": {"dtype": "bfloat16"}},
}
LIVE = (
    "algorithm.options.window_size=1",
    "algorithm.options.window_range=[0,1]",
    "data.prompts_per_rollout=16",
    "data.samples_per_prompt=8",
    "training.global_steps=6",
    "training.trainable=full",
    "training.ema_decay=0.9",
    "schedule.strategy=planned",
    "schedule.tag_memory=offload",
    "eval.enabled=false",
    "checkpoint.every=0",
    "name=tag-switch",
)


class NoBlobs:
    """A switch pulls and serves nothing."""

    def serve(self, tensors: object) -> NoReturn:
        raise AssertionError("nothing is served")

    def request(self, ref: object, names: object) -> "Future[Any]":
        raise AssertionError("nothing is pulled")

    def free(self, blobs: object) -> None:
        return None


def model_folder(folder: Path, width: int) -> Path:
    """The demo's pipeline with a random transformer of `width` channels, a multiple of 32."""
    from diffusers import FluxPipeline, FluxTransformer2DModel

    pipeline = FluxPipeline.from_pretrained(MODEL)
    heads = dict(num_attention_heads=width // 32, attention_head_dim=32, axes_dims_rope=(8, 12, 12))
    torch.manual_seed(0)
    config = {**pipeline.transformer.config, **heads, "num_layers": 4, "num_single_layers": 8}
    pipeline.register_modules(transformer=FluxTransformer2DModel.from_config(config))
    pipeline.save_pretrained(folder)
    return folder


def trainer_of(folder: Path, device: str, kind: str) -> tuple[Any, Trainer]:
    """A job and its trainer after one optimizer step on random gradients, with another gradient accumulated."""
    document = JobConfig.model_validate(
        {
            "name": "switch",
            "rewards": [{"name": "jpeg_incompressibility"}],
            "data": {"prompts": "prompts.txt", "prompts_per_rollout": 1, "samples_per_prompt": 2},
            "sampling": {"height": 16, "width": 16},
            "model": {
                "family": "flux",
                "path": str(folder),
                "options": {"max_sequence_length": 8},
                **KINDS[kind].get("model", {}),
            },
            "training": {"global_steps": 1, **KINDS[kind].get("training", {})},
        }
    )
    task = PrepareTask(job="switch", incarnation=0, config=document.model_dump_json())
    job = load_job(task, document, device, trains=True)
    build: Any = load_object(job.algorithm.objective)
    trainer = Trainer(job, build(job.algorithm_options))
    for _ in range(2):
        for parameter in trainer.masters.parameters.values():
            parameter.grad = torch.randn_like(parameter)
        if not trainer.optimizer.state:
            trainer.optimizer.step()
    return job, trainer


def bandwidth(device: torch.device) -> tuple[float, float]:
    """Bytes a second of a plain copy from the device into host memory, and of one back; both into memory in use."""
    there = torch.zeros(PLAIN_COPY, dtype=torch.uint8, device=device)
    host = torch.empty(PLAIN_COPY, dtype=torch.uint8, pin_memory=device.type == "cuda").zero_()
    out = timed(lambda: host.copy_(there, non_blocking=True), device)
    back = timed(lambda: there.copy_(host, non_blocking=True), device)
    return PLAIN_COPY / out, PLAIN_COPY / back


def timed(act: Callable[[], object], device: torch.device) -> float:
    """Seconds, the median of seven after one that does not count."""
    found = []
    for _ in range(8):
        begun = perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(perf_counter() - begun)
    return median(found[1:])


def engine_rows(folder: Path, device: str, repeats: int) -> Iterator[str]:
    for kind in KINDS:
        job, trainer = trainer_of(folder, device, kind)
        place = job.model.device
        moving = offloading_of(job, trainer)
        state = training_state(job.policy, trainer.masters, trainer.optimizer, place)
        before, size = checksum(state), sum(each.nbytes for each in state.values())
        spent: dict[str, list[float]] = {"allocate": [], OFFLOAD: [], RESTORE: []}
        sums = {before}
        for number in range(repeats + 1):
            context = TaskContext(NoBlobs())
            moving.offload(context)
            sums.update([checksum(state)] if number == repeats else [])
            moving.restore(context)
            for stage, ns in context.stages.receipt().stages:
                spent[stage].append(ns / 1e9)
        sums.add(checksum(state))
        first, rates = spent["allocate"][0], bandwidth(place)
        told = [
            f"{kind} | {len(state)} | {size / 2**20:.1f} | {'same' if len(sums) == 1 else 'DIFFERENT'} | {first:.4f}"
        ]
        for stage, rate in zip((OFFLOAD, RESTORE), rates, strict=True):
            told.append(f"{spread(spent[stage][1:])} | {size / rate:.4f}")
        yield f"| {' | '.join(told)} |"


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.4f} ({min(values):.4f} - {max(values):.4f})"


@dataclass(frozen=True, slots=True)
class Live:
    """Seconds. `assumed`: c of each search; `measured`: half of each offload with the restore after it."""

    assumed: list[float]
    measured: list[float]
    ratios: list[float]
    num_tags: int


def live(records: Sequence[Record]) -> Live:
    """Of a finished job: each c that a search took against the first round trip that began after it."""
    trips: list[tuple[int, float]] = []
    begun: tuple[int, float] | None = None
    searches: list[tuple[int, float]] = []
    for record in records:
        body = record.body
        if isinstance(body, Decision) and "switch" in body.times_us:
            searches.append((record.at_ns, body.times_us["switch"] / 1e6))
        elif isinstance(body, TaskRecord):
            stages = dict(body.receipt.stages)
            if OFFLOAD in stages:
                begun = (body.start_ns, stages[OFFLOAD] / 1e9)
            if RESTORE in stages and begun is not None:
                trips.append((begun[0], (begun[1] + stages[RESTORE] / 1e9) / 2))
                begun = None
    after = [(c, next((cost for at, cost in trips if at >= since), None)) for since, c in searches]
    tags = sum(isinstance(record.body, TaskRecord) and record.body.task == "assist" for record in records)
    return Live(
        assumed=[c for _, c in searches],
        measured=[cost for _, cost in trips],
        ratios=[c / cost for c, cost in after if cost],
        num_tags=tags,
    )


def run_live() -> Live:
    from clients.api import Digend

    with running(NODE) as cluster, Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        job = driver.submit(JOB, overrides=LIVE).job
        view = driver.wait(job)
        if view.state != "completed":
            raise SystemExit(f"{job} is {view.state}: {view.reason}")
        return live(list(driver.follow(job)))


HEAD = (
    "| state | tensors | MiB | checksums | host memory s | offload s | size / bandwidth | restore s "
    "| size / bandwidth |\n|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512, help="of the transformer, a multiple of 32")
    parser.add_argument("--repeats", type=int, default=9, help="switches a row")
    parser.add_argument("--no-live", action="store_true", help="the engine alone")
    parser.add_argument("--json", type=Path, help="also write what the daemons' run gave")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    on = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else platform.processor()
    print(f"{options.device}: {on or platform.machine()}; torch {torch.__version__}\n\n{HEAD}")
    with tempfile.TemporaryDirectory() as folder:
        for line in engine_rows(model_folder(Path(folder), options.width), options.device, options.repeats):
            print(line, flush=True)
    if options.no_live:
        return
    found = run_live()
    if not found.ratios:
        raise SystemExit(f"no search came before a switch ({found.num_tags} TAG): nothing to compare")
    trips = f"{found.num_tags} TAG, {len(found.measured)} round trips"
    print(
        f"\nlive: {trips}; half of one took {spread(found.measured)} s; "
        f"{len(found.assumed)} searches took c = {spread(found.assumed)} s; c over the next half round trip: "
        f"{median(found.ratios):.2f} ({min(found.ratios):.2f} - {max(found.ratios):.2f})"
    )
    if options.json:
        document = {"assumed": found.assumed, "measured": found.measured, "ratios": found.ratios}
        options.json.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
