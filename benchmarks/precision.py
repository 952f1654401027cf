"""How far trainer and generator are apart, by number type: max |log ratio| before each of three optimizer steps.

    python -m benchmarks.precision [--families flux wan] [--dtypes float32 bfloat16] [--write]

For every family's tiny pipeline, a generator and a trainer as the daemons run them: a rollout of 6 samples in batches
of 4 and 2, then the update on it, cut in four ways; weights are published and adopted in between, so step 3 compares
the policy after two updates. The last column is not what digend does: it stores the latents of the rollout in bfloat16
after their log-prob was taken, and shows what the measure sees then. `--write` puts the table into docs/results.md.

Tiny random models on a CPU: real kernels of a GPU differ more between batch sizes than these do.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.marked import replace_marked
from daemons.driver.jobs import RATIO_RULES
from digend.engines.arrays import to_array, to_tensor
from digend.wire.tasks import GenerateResult, ResetTask
from tests.engines.world import JOB, Bench, MemoryContext, bench, job_config
from tests.families import FAMILIES, Family

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
STEPS = 3
GEOMETRIES = {"same": (4, 1), "3": (3, 1), "1": (1, 1), "all": (6, 0)}
"""Samples a forward pass of the update, and timesteps (0: all of a sample); the rollout has 4 samples a pass."""
TRAINABLE = {"full": {"trainable": "full"}, "LoRA": {"trainable": "lora", "lora_rank": 4}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    family: str
    dtype: str
    trainable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Largest |log ratio|: by geometry, before each of the steps; and with latents that were rounded."""

    case: Case
    found: Mapping[str, tuple[float, ...]]
    rounded: tuple[float, ...]

    @property
    def largest(self) -> float:
        return max(max(steps) for steps in self.found.values())


def measure(case: Case, folder: Path, root: Path) -> Row:
    family = FAMILIES[case.family]
    found: dict[str, tuple[float, ...]] = {}
    rounded: tuple[float, ...] = ()
    for name, (update_batch, width) in GEOMETRIES.items():
        training = {**TRAINABLE[case.trainable], "update_batch": update_batch, "timestep_width": width}
        found[name], after = _life(case, family, folder, root / name, training)
        rounded = rounded or after
    return Row(case=case, found=found, rounded=rounded)


def _life(
    case: Case, family: Family, folder: Path, root: Path, training: Mapping[str, object]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Three global steps of a generator and a trainer: what was found, and what with rounded latents."""
    config = job_config(folder, **family.tables(training=training, model={"dtype": case.dtype}))
    context = MemoryContext()
    trainer, generator = (bench(role, config, root, context) for role in ("trainer", "generator"))
    found, after = [], []
    for step in range(STEPS):
        groups = trainer.groups(step)
        rollout = generator.generate(generator.generate_task(version=step, step=step, groups=groups))
        items = trainer.items(groups, rollout)
        exact = _round(context, rollout)
        after.append(trainer.update(items, step=step).max_abs_log_ratio)
        trainer.engine.run(ResetTask(job=JOB, incarnation=0), context)
        context.blobs.update(exact)
        found.append(trainer.update(items, step=step).max_abs_log_ratio)
        _publish(trainer, generator, step)
    return tuple(found), tuple(after)


def _round(context: MemoryContext, rollout: GenerateResult) -> dict[str, Mapping[str, object]]:
    """Round the kept latents to bfloat16, in place; returns what was there."""
    assert rollout.trajectory is not None
    blob = context.blobs[rollout.trajectory.id]
    context.blobs[rollout.trajectory.id] = {
        name: to_array(to_tensor(array).to(torch.bfloat16).float()) if name.endswith("/latents") else array
        for name, array in blob.items()
    }
    return {rollout.trajectory.id: blob}


def _publish(trainer: Bench, generator: Bench, step: int) -> None:
    weights = trainer.commit(version=step, step=step).weights
    assert weights is not None
    generator.engine.adopt(weights, trainer.context.pull(weights.blob))


def table(rows: Sequence[Row]) -> str:
    head = ["family", "dtype", "trained", "same 4", "batch 3", "batch 1", "all 18 pairs in one pass", "rounded after"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        told = [_steps(steps) for steps in (*row.found.values(), row.rounded)]
        lines.append("| " + " | ".join([row.case.family, row.case.dtype, row.case.trainable, *told]) + " |")
    return "\n".join(lines)


def _steps(found: Sequence[float]) -> str:
    """One number where all steps have the same."""
    told = [f"{each:.1e}" if each else "0" for each in found]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], help="as model.dtype has them")
    parser.add_argument("--write", action="store_true", help="write the table into docs/results.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            model = FAMILIES[family].build(Path(folder) / family)
            for dtype in options.dtypes:
                for trainable in TRAINABLE:
                    case = Case(family=family, dtype=dtype, trainable=trainable)
                    rows.append(measure(case, model, Path(folder) / f"{family}-{dtype}-{trainable}"))
                    print(table(rows[-1:]).splitlines()[-1], flush=True)
    if options.write:
        replace_marked(PAGE, "precision", table(rows))
    over = [row for row in rows if row.largest > RATIO_RULES.get(row.case.dtype, float("inf"))]
    for row in over:
        print(f"{row.case} is {row.largest:.3g} off, more than {RATIO_RULES[row.case.dtype]:g}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
