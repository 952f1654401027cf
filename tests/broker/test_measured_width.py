"""A TSP width that the trainer measured: told once, in the records, and by `digenctl explain`."""

from dataclasses import replace

from clients.explain_text import job_lines
from digend.telemetry.explain import explain
from digend.telemetry.trail import Trail
from digend.wire.records import Notice, Record
from digend.wire.tasks import ResultBody, TaskBody, TaskError, UpdateResult, UpdateTask
from tests.broker.support import bodies, finished, job


def measured(shell: object, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
    """A trainer that tried widths before its first update."""
    if not isinstance(task, UpdateTask) or not isinstance(result, UpdateResult):
        return result
    first = (task.global_step, task.micro_batch) == (0, 0)
    return replace(result, width=4, tried=((1, 0.5), (2, 0.25), (4, 0.125)) if first else ())


def test_it_is_told_once_with_what_was_tried() -> None:
    simulation = finished(job(num_global_steps=2), 2, tamper=measured)
    (told,) = [each for each in bodies(simulation, Notice) if "timestep_width" in each.details]
    assert told.details == {"timestep_width": "4"}
    assert told.message.startswith("timestep width 4, tried on ")
    assert told.message.endswith("(seconds a pair): 1: 0.5 s, 2: 0.25 s, 4: 0.125 s")
    found = explain(Trail([Record(job="j", seq=1, at_ns=0, body=told)]))
    assert found is not None
    assert f"width      {told.message}" in list(job_lines(found))
