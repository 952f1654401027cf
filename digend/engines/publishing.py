"""Publishing a policy version: a copy of every trainable parameter, served to whoever stages it.

Invariant: what is served is a copy, so the next optimizer step does not reach it.
"""

from digend.engines.arrays import to_array
from digend.engines.jobs import Job
from digend.engines.protocols import Context
from digend.wire.refs import WeightsRef


def publish(job: Job, context: Context) -> WeightsRef:
    """Serve the present weights as version `job.version`."""
    with context.stage("publish"):
        tensors = job.layout.whole(job.policy.published(), context)
        arrays = {name: to_array(each) for name, each in tensors.items()}
        blob = context.serve(arrays)
    return WeightsRef(
        blob=blob,
        job=job.id,
        incarnation=job.incarnation,
        version=job.version,
        num_tensors=len(arrays),
        form=job.policy.form,
    )
