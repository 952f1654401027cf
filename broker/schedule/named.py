"""Strategies by the names that job files and `digenctl simulate` use."""

from broker.schedule.bts import Bts
from broker.schedule.planned import Planned
from broker.strategies import Always, Never, Static, Strategy

EACH = ("never", "always", "static:N", "bts", "planned")
NAMES = f"{', '.join(EACH[:-1])} or {EACH[-1]}"


def strategy_of(name: str) -> Strategy:
    """Raises ValueError for another name."""
    plain: dict[str, Strategy] = {"never": Never(), "always": Always(), "bts": Bts(), "planned": Planned()}
    if name in plain:
        return plain[name]
    kind, _, count = name.partition(":")
    if kind == "static" and count.isdecimal():
        return Static(int(count))
    raise ValueError(f"schedule.strategy = {name!r}: expected {NAMES}")
