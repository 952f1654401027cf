"""Names of figures: each is documented, none is invented where nothing was measured."""

from dataclasses import replace
from typing import Literal

from digend.telemetry.figures import FIGURES, described, figures, slug
from digend.wire.records import DriftRecord, EvaluationRecord, StepRecord
from tests.recorder.plausible import plausible_run


def _step() -> StepRecord:
    return next(record.body for record in plausible_run() if isinstance(record.body, StepRecord))


def _measured() -> StepRecord:
    return replace(
        _step(),
        seconds=2.0,
        num_samples=12,
        num_micro_batches=4,
        stale_micro_batches=1,
        worker_seconds=6.0,
        gpu_seconds=4.0,
        bubble_seconds={"no sample to score": 1.0, "weights": 0.5},
        flops={"generate": 3e12, "assist": 1e12, "update": 4e12},
        peak_flops=32e12,
    )


def test_every_figure_is_documented_once() -> None:
    evaluation = next(record.body for record in plausible_run() if isinstance(record.body, EvaluationRecord))
    for name in [*figures(_measured()), *figures(evaluation)]:
        assert described(name) is not None, name
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert described("made/up") is None


def test_every_documented_figure_is_made() -> None:
    evaluation = next(record.body for record in plausible_run() if isinstance(record.body, EvaluationRecord))
    kinds: tuple[Literal["worker", "timestep", "origin"], ...] = ("worker", "timestep", "origin")
    drift = tuple(DriftRecord(by=by, name="1", num_pairs=1, mean=0.0, max=0.0) for by in kinds)
    step = replace(_measured(), component_stds={"a": 0.0}, component_zero_std={"a": 0.0}, drift=drift, loss_scale=2.0)
    made = {described(name) for name in [*figures(step), *figures(evaluation)]}
    assert made == set(FIGURES)


def test_costs() -> None:
    found = figures(_measured())
    assert found["bubble/share"] == 0.25
    assert found["bubble/no_sample_to_score_s"] == 1.0
    assert found["throughput/samples_per_worker_second"] == 2.0
    assert found["throughput/samples_per_gpu_second"] == 3.0
    assert found["compute/flops_per_second"] == 4e12
    assert found["compute/generation_flops"] == found["compute/training_flops"] == 4e12
    assert found["compute/utilisation"] == 0.25
    assert found["schedule/stale_share"] == 0.25


def test_what_was_not_measured_is_absent() -> None:
    found = figures(replace(_measured(), worker_seconds=0.0, gpu_seconds=0.0, flops={}, peak_flops=0.0))
    assert not [name for name in found if name.startswith(("bubble", "throughput", "compute"))]


def test_without_a_peak_there_is_speed_and_no_utilisation() -> None:
    found = figures(replace(_measured(), peak_flops=0.0))
    assert "compute/flops_per_second" in found
    assert "compute/utilisation" not in found


def test_a_cause_in_a_name() -> None:
    assert slug("no sample to score") == "no_sample_to_score"
    assert slug("global step waits: (x)") == "global_step_waits_x"
