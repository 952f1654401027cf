"""A cluster's keys, made anew for each test."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from digend.net.security import Grant, KeyPair, Security, grant, new_pair

ROLES: Mapping[str, frozenset[str]] = {
    "box-a": frozenset({"driver", "trainer", "recorder"}),
    "box-b": frozenset({"generator", "reward"}),
    "box-r": frozenset({"recorder"}),
    "ada": frozenset({"client"}),
}
LOCAL = "tcp://127.0.0.1"


@dataclass(frozen=True)
class Keys:
    """A pair for each of `ROLES`, all listed."""

    pairs: Mapping[str, KeyPair] = field(default_factory=lambda: {name: new_pair() for name in ROLES})

    def grants(self, *without: str) -> dict[str, Grant]:
        """The list, by public key."""
        listed = [name for name in ROLES if name not in without]
        return {self.pairs[name].public: grant(name, ROLES[name], self.pairs[name].public) for name in listed}

    def of(self, name: str, *without: str) -> Security:
        """What a process of `name` has; `without` names are not in its list."""
        return Security(self.pairs[name], self.grants(*without))

    def stranger(self) -> Security:
        """Somebody who knows the list and is not on it."""
        return Security(new_pair(), self.grants())


class Told:
    """What a porter said of those it refused."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str]] = []

    def __call__(self, key: str, address: str) -> None:
        self.refused.append((key, address))
