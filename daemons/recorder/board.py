"""TensorBoard's event file, written without torch and tensorflow.

Owns the bytes. Knows no run. Invariant: a pure function of records, byte for byte, so that the file can be
healed after a kill. Steps on TensorBoard's axis are closed global steps; its wall time is the driver's
clock of the record.
"""

import io
import math

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from digend.telemetry.figures import figures
from digend.wire.records import EvaluationRecord, Record, StepRecord

FILE_NAME = "events.out.tfevents.0000000000.digend"


def header(at_ns: int) -> bytes:
    """What every event file begins with."""
    return _framed(Event(wall_time=at_ns / 1e9, file_version="brain.Event:2"))


def scalars(record: Record) -> bytes:
    """The record's figures as one event; nothing for a record without figures."""
    body = record.body
    if not isinstance(body, StepRecord | EvaluationRecord):
        return b""
    values = [
        Summary.Value(tag=name, simple_value=value) for name, value in figures(body).items() if math.isfinite(value)
    ]
    return _framed(Event(wall_time=record.at_ns / 1e9, step=body.global_step, summary=Summary(value=values)))


def _framed(event: Event) -> bytes:
    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()
