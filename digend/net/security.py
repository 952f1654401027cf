"""This process's key and the keys that it knows: made, read, read again, put on sockets.

Owns what a key stands for. Must not know messages' meaning. Invariant: what is listed is replaced as a whole; a list
that is refused changes nothing. ipc never has keys; where a process has some, all its TCP does, but for tensors on a
trusted fabric.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from digend.config.errors import ConfigError, Problem
from digend.config.fabric import Network, is_in, network_of
from digend.config.keyfiles import load_key_file, load_key_list, private_key_path
from digend.config.node import KeysNodeConfig
from digend.wire.verbs import from_roles

DOMAIN = "digend"
"""Of all sockets with keys (ZAP). They differ by context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """Both in Z85."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the list says of a public key: who has it, and what for."""

    name: str
    roles: frozenset[str]
    public: str
    verbs: frozenset[type] = field(repr=False)
    """What it may be used to say to the driver."""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(sorted(self.roles))})"


def grant(name: str, roles: frozenset[str], public: str) -> Grant:
    return Grant(name=name, roles=roles, public=public, verbs=from_roles(roles))


class Security:
    """One a process. `source` is where `reload` reads the list again; `fabric` is where tensors go in the clear."""

    def __init__(
        self, key: KeyPair, grants: Mapping[str, Grant], source: Path | None = None, fabric: Network | None = None
    ) -> None:
        self.key = key
        self.fabric = fabric
        self._grants = dict(grants)
        self._source = source

    @classmethod
    def load(cls, keys: KeysNodeConfig, environ: Mapping[str, str] = os.environ) -> "Security":
        """What `[keys]` of a node file (its paths absolute) means. Raises ConfigError."""
        source = Path(keys.allowed)
        fabric = network_of(keys.trusted_fabric) if keys.trusted_fabric else None
        return cls(read_pair(private_key_path(keys.private, environ)), read_grants(source), source, fabric)

    def reload(self) -> tuple[list[str], list[str]]:
        """Reads the list again; entries that are in it now, and that were. Raises ConfigError, and nothing has
        changed."""
        before, self._grants = self._grants, read_grants(self._source) if self._source else self._grants
        was, now = ({(public, str(grant)) for public, grant in each.items()} for each in (before, self._grants))
        return sorted(name for _, name in now - was), sorted(name for _, name in was - now)

    def grant(self, public: str) -> Grant | None:
        """What is listed for a key."""
        return self._grants.get(public)

    def trusts(self, host: str) -> bool:
        """Whether a host's address is on the trusted fabric."""
        return is_in(host, self.fabric)

    @property
    def driver(self) -> str:
        """The driver's public key."""
        return next(grant.public for grant in self._grants.values() if "driver" in grant.roles)

    def as_server(self, socket: Any) -> None:
        """Before bind: only with keys, which are shown to the context's porter."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, self.key.secret)
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)

    def as_clear_server(self, socket: Any) -> None:
        """Before bind, on a trusted fabric: whoever comes is shown to the context's porter by address alone."""
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)

    def as_client(self, socket: Any, server: str) -> None:
        """Before connect: only to a process that has the secret of the public key `server`."""
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, server)
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, self.key.public)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, self.key.secret)


def new_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public=public.decode(), secret=secret.decode())


def read_pair(path: Path) -> KeyPair:
    """A private key file. Raises ConfigError."""
    config = load_key_file(path)
    if zmq.curve_public(config.secret.encode()).decode() != config.public:
        message = "does not belong to the secret key of this file: make a new one with digenctl keygen"
        raise ConfigError([Problem(where=str(path), key="public", message=message)])
    return KeyPair(public=config.public, secret=config.secret)


def write_pair(pair: KeyPair, path: Path, name: str) -> None:
    """Makes the file, mode 0600, and its folder. Raises OSError: FileExistsError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        f"# The key of {name}, made by digenctl keygen. Who can read it can speak in that name.\n"
        f"public = '{pair.public}'\nsecret = '{pair.secret}'\n"
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_grants(path: Path) -> dict[str, Grant]:
    """The list, by public key. Raises ConfigError."""
    return {entry.public: grant(entry.name, frozenset(entry.roles), entry.public) for entry in load_key_list(path)}
