"""The flat names under which a record's figures appear: metrics.jsonl, TensorBoard, curves and `digenctl
show job`.

Owns the names, nothing else. Knows no files. Invariant: a pure function of one record, so that everything
derived from a job's records can be made again and comes out the same.

`train/...` are of the optimizer step, `reward/...` and `component/...` means over unmasked samples,
`eval/...` means of one evaluation, `time/..._s` seconds.
"""

from collections.abc import Iterable

from digend.wire.records import EvaluationRecord, RecordBody, StepRecord


def in_order(metrics: Iterable[str]) -> list[str]:
    """Names of an evaluation's metrics as a person reads them: what was trained for first, diversity last."""
    return sorted(metrics, key=lambda name: (name != "reward", name == "diversity", name))


def figures(body: RecordBody) -> dict[str, float]:
    """Figures of a closed global step or of an evaluation; empty for every other record."""
    if isinstance(body, StepRecord):
        return _step_figures(body)
    if isinstance(body, EvaluationRecord):
        return _evaluation_figures(body)
    return {}


def _step_figures(step: StepRecord) -> dict[str, float]:
    components = {f"component/{name}": value for name, value in sorted(step.components.items())}
    return {
        "reward/mean": step.reward_mean,
        "reward/std": step.reward_std,
        **components,
        "train/loss": step.loss,
        "train/clip_fraction": step.clip_fraction,
        "train/ratio_mean": step.ratio_mean,
        "train/max_abs_log_ratio": step.max_abs_log_ratio,
        "train/first_max_abs_log_ratio": step.first_max_abs_log_ratio,
        "train/kl": step.kl,
        "train/gradient_norm": step.gradient_norm,
        "train/learning_rate": step.learning_rate,
        "train/planned_pairs": step.z0,
        "train/pairs": step.z,
        "samples/generated": step.num_samples,
        "samples/masked": step.num_masked,
        "samples/selected": step.num_selected,
        "groups/generated": step.num_groups,
        "groups/dropped": step.num_dropped_groups,
        "groups/zero_std": step.num_zero_std_groups,
        "schedule/stale_micro_batches": step.stale_micro_batches,
        "schedule/assisted_micro_batches": step.assisted_micro_batches,
        "time/global_step_s": step.seconds,
    }


def _evaluation_figures(evaluation: EvaluationRecord) -> dict[str, float]:
    metrics = {f"eval/{name}": evaluation.metrics[name] for name in in_order(evaluation.metrics)}
    return {**metrics, "samples/evaluated": evaluation.num_samples, "time/evaluation_s": evaluation.seconds}
