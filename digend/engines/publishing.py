"""Publishing a policy version: a copy of every trainable parameter, served to whoever stages it.

Beside the whole, what changed since the version published before it, for those who have that one. Invariant: what is
served is a copy, so the next optimizer step does not reach it; the whole's digest covers what the changes lead to.
"""

from collections.abc import Mapping

from digend.engines.arrays import to_array, torch_dtype
from digend.engines.jobs import Job
from digend.engines.protocols import Context
from digend.wire.changes import changes_between
from digend.wire.refs import WeightsChanges, WeightsRef
from digend.wire.tensors import Array


def publish(job: Job, context: Context) -> WeightsRef:
    """Serve the present weights as version `job.version`."""
    with context.stage("gather"):
        tensors = job.layout.whole(job.policy.published(), context)
        if job.policy.sent_as is not None:
            with context.stage("cast"):
                tensors = {name: each.to(torch_dtype(job.policy.sent_as)) for name, each in tensors.items()}
        arrays = {name: to_array(each) for name, each in tensors.items()}
    with context.stage("publish"):
        blob = context.serve(arrays)
        changes = _changes(job, arrays, context)
    job.published = (job.version, arrays)
    return WeightsRef(
        blob=blob,
        job=job.id,
        incarnation=job.incarnation,
        version=job.version,
        num_tensors=len(arrays),
        form=job.policy.form,
        changes=changes,
    )


def _changes(job: Job, arrays: Mapping[str, Array], context: Context) -> WeightsChanges | None:
    """None where the job sends whole versions, or the whole is no larger."""
    if job.published is None or job.config.training.publish == "whole":
        return None
    version, before = job.published
    changes = changes_between(before, arrays)
    return None if changes is None else WeightsChanges(since=version, blob=context.serve(changes))
