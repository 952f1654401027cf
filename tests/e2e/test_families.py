"""Every model family through the daemons: two global steps, with pictures or films in the run folder.

Full, decoded and scored by the generators; and LoRA, decoded and scored by a reward process.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.run import assert_counted_once, assert_time_is_accounted_for
from tests.families import FAMILIES, Family
from tests.models.checks import stock_pipeline

EVERY_DAY = {("sd3", "full"), ("wan", "lora")}
"""A picture and a film; the others run in `make matrix`."""
CASES = [
    pytest.param(name, trainable, marks=[] if (name, trainable) in EVERY_DAY else pytest.mark.matrix)
    for name in FAMILIES
    for trainable in ("full", "lora")
]


@pytest.mark.parametrize(("name", "trainable"), CASES)
def test_two_global_steps(cluster: Cluster, tmp_path: Path, name: str, trainable: str) -> None:
    family = FAMILIES[name]
    run = cluster.run(
        f"{name.replace('_', '-')}-{trainable}",
        *overrides(family, family.build(tmp_path / "model")),
        f"training.trainable={trainable}",
        "training.lora_rank=4",
        *(("schedule.scoring=dedicated", "schedule.decode=reward") if trainable == "lora" else ()),
    )
    assert_counted_once(run, 2)
    assert_time_is_accounted_for(run, *run.summary["stage_seconds"])
    assert all(line["train/max_abs_log_ratio"] <= 1e-6 for line in run.metrics if line["kind"] == "step")
    stages = {stage for row in run.summary["stage_seconds"].values() for stage in row}
    assert {"encode", "generate", "decode", "update"} <= stages
    assert ("unconditional" in stages) == (name in ("qwen_image", "wan", "wan22"))
    films = list((run.folder / "samples").glob("*.webp"))
    assert bool(films) == (family.shape.num_frames > 1)
    trained = stock_pipeline(Path(run.summary["pipeline"]))
    drawn = family.drawn_by_stock(trained, 2, (1,), prompt=["a red circle"])
    assert drawn.isfinite().all()


def overrides(family: Family, folder: Path) -> list[str]:
    """The demo's short job with another model."""
    tables: dict[str, dict[str, Any]] = {"model.options": dict(family.options), "sampling": dict(family.sampling)}
    changes = [f"{table}.{key}={value}" for table, values in tables.items() for key, value in values.items()]
    return [
        f"model.family={family.name}",
        f"model.path={folder}",
        *changes,
        "rewards=[{name='jpeg_incompressibility'}]",
        "eval.metrics=[]",
        "training.global_steps=2",
    ]
