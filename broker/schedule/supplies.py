"""Which supply a model has."""

from broker.schedule.colocated import Colocated
from broker.schedule.dedicated import Dedicated
from broker.schedule.direct import Direct
from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supply import Supply


def supply_of(model: Model, snapshot: Snapshot) -> Supply:
    """At instant 0 of a search."""
    if model.times.score == 0:
        return Direct(model, snapshot)
    return Dedicated(model, snapshot) if model.servers else Colocated(model, snapshot)
