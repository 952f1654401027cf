"""metrics.jsonl: one line for each closed global step and each evaluation, with all its figures under flat
names.

Owns the form of a line. Invariant: a pure function of one record. Figures that are not finite are null.
"""

import json
import math

from digend.telemetry.figures import figures
from digend.wire.records import EvaluationRecord, Record, StepRecord


def metrics_line(record: Record) -> str:
    """The line with its newline, or nothing for a record without figures."""
    body = record.body
    if not isinstance(body, StepRecord | EvaluationRecord):
        return ""
    head: dict[str, int | str | float | None] = {
        "seq": record.seq,
        "at_ns": record.at_ns,
        "kind": body.kind,
        "global_step": body.global_step,
        "policy_version": body.version,
        "incarnation": body.incarnation,
    }
    if isinstance(body, EvaluationRecord):
        head["label"] = body.label
    elif body.skipped is not None:
        head["skipped"] = body.skipped
    values = {name: value if math.isfinite(value) else None for name, value in figures(body).items()}
    return json.dumps(head | values, ensure_ascii=False, allow_nan=False) + "\n"
