"""What a job has had broadcast. Data only; who takes part is `broadcasts`' to say."""

from dataclasses import dataclass, field

from broker.microbatch import Stamp


@dataclass(slots=True, eq=False)
class Convened:
    """`epoch` counts broadcasts. `of`: the version that was broadcast last; `members`: to whom, rank by rank, unless
    one of them was lost since. `beyond_reach`: workers that the trainer cannot broadcast to, as has been said."""

    epoch: int = 0
    of: Stamp | None = None
    members: tuple[str, ...] = ()
    beyond_reach: dict[str, None] = field(default_factory=dict)
