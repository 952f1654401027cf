"""What a role does and refuses, and how a job that cannot be loaded fails."""

from pathlib import Path

import pytest

from digend.engines.engine import LocalEngine
from digend.engines.protocols import TaskFault
from digend.wire.tasks import CheckpointTask, PrepareTask, ResetTask
from tests.engines.world import JOB, MemoryContext, T, bench, job_config, prepare_task


def fault_of(config_changes: dict[str, dict[str, object]], folder: Path, root: Path) -> TaskFault:
    engine = LocalEngine("generator", "cpu", root / "runs", root / "state")
    with pytest.raises(TaskFault) as fault:
        engine.run(prepare_task(job_config(folder, **config_changes)), MemoryContext())
    return fault.value


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"model": {"family": "fluxx"}}, "config", "did you mean flux"),
        ({"model": {"options": {"max_sequence": 8}}}, "config", "model.options.max_sequence"),
        ({"model": {"options": {"max_sequence_length": 64}}}, "model", "allows"),
        ({"model": {"path": "/nowhere"}}, "model", "/nowhere is not a folder"),
        ({"algorithm": {"name": "flow_grop"}}, "config", "did you mean flow_grpo"),
        ({"algorithm": {"options": {"clip_rnage": 1e-4}}}, "config", "did you mean clip_range"),
        ({"sampling": {"height": 33}}, "config", "nearest is 32"),
        ({"sampling": {"sigma_schedule": "danse:3"}}, "config", "did you mean 'dance'"),
        ({"training": {"trainable": "lora", "lora_targets": ["to_z"]}}, "config", "to_z"),
    ],
)
def test_a_job_that_cannot_be_loaded(
    flux_folder: Path, tmp_path: Path, changes: dict[str, dict[str, object]], reason: str, words: str
) -> None:
    error = fault_of(changes, flux_folder, tmp_path).error
    assert error.reason == reason
    assert words in error.message


def test_a_job_file_of_another_release_is_refused(tmp_path: Path) -> None:
    engine = LocalEngine("generator", "cpu", tmp_path, tmp_path)
    with pytest.raises(TaskFault, match="refused") as fault:
        engine.run(PrepareTask(job=JOB, incarnation=0, config='{"name": "x"}'), MemoryContext())
    assert fault.value.error.reason == "config"


@pytest.mark.parametrize(
    ("schedule", "first"),
    [("family", 0.8633784055709839), ("linear", 0.800000011920929), ("dance:3", 0.9230769872665405)],
)
def test_sigma_schedules(flux_folder: Path, tmp_path: Path, schedule: str, first: float) -> None:
    config = job_config(flux_folder, sampling={"sigma_schedule": schedule}, eval={"num_timesteps": 8})
    prepared = bench("generator", config, tmp_path).prepared
    assert (len(prepared.sigmas), len(prepared.eval_sigmas)) == (T + 1, 9)
    assert prepared.sigmas[:2] == (1.0, first)
    assert prepared.sigmas[-1] == 0.0


def test_what_prepare_reports(flux_folder: Path, tmp_path: Path) -> None:
    full, lora = (
        bench("trainer", job_config(flux_folder, training={"trainable": kind, "lora_rank": 4}), tmp_path).prepared
        for kind in ("full", "lora")
    )
    assert full.base_digest == lora.base_digest != ""
    assert full.num_trainable == full.num_parameters
    assert 0 < lora.num_trainable < full.num_trainable
    for prepared, form in ((full, "full"), (lora, "lora")):
        assert prepared.weights is not None
        assert (prepared.weights.version, prepared.weights.form) == (0, form)
    assert bench("generator", job_config(flux_folder), tmp_path).prepared.weights is None


def test_roles(flux_folder: Path, tmp_path: Path) -> None:
    generator = bench("generator", job_config(flux_folder), tmp_path)
    for task in (
        ResetTask(job=JOB, incarnation=0),
        CheckpointTask(job=JOB, incarnation=0, version=0, global_step=0),
        generator.update_task([]),
    ):
        with pytest.raises(TaskFault, match="a generator does not train"):
            generator.engine.run(task, generator.context)


def test_an_ended_job_is_gone(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder), tmp_path)
    on.engine.end("another")
    on.generate(on.generate_task())
    on.engine.end(JOB)
    on.engine.end(JOB)
    with pytest.raises(TaskFault, match="not prepared"):
        on.generate(on.generate_task())
    assert on.engine.applied(JOB) == (-1, -1, ())


def test_a_failed_prepare_leaves_nothing_loaded(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder), tmp_path)
    with pytest.raises(TaskFault):
        on.engine.run(prepare_task(job_config(tmp_path / "nowhere")), on.context)
    with pytest.raises(TaskFault, match="not prepared"):
        on.generate(on.generate_task())


def test_stages_of_the_receipt(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", job_config(flux_folder), tmp_path)
    on.one_step(0)
    assert on.context.stages == [
        *("load", "gather", "publish", "encode", "encode", "encode"),
        *("switch_load", "fetch", "generate", "decode", "generate", "decode"),
        *("switch_load", "fetch", "update", "optimizer", "gather", "publish"),
    ]
