"""The two files of keys: this box's own pair, and the list of public keys that are let in (docs/operate.md).

Owns their form, and who may read the first. Must not know sockets, nor whether a pair fits together. Invariant: an
error never repeats a secret.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from digend.config.checking import validated
from digend.config.errors import ConfigError, Problem, require
from digend.config.node import NODE_NAME
from digend.config.section import Section
from digend.config.source import Source, read_source

KeyRole = Literal["driver", "generator", "trainer", "reward", "recorder", "client"]

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""The alphabet of keys. Source: ZeroMQ RFC 32."""

KEY_CHARS = 40
CREDENTIAL = "digend-key"
"""Name of the private key file among the credentials that systemd hands to a service."""


def is_key(text: str) -> str:
    """`text` if it is 32 bytes in Z85. Raises ValueError."""
    groups = [text[start : start + 5] for start in range(0, len(text), 5)]
    if len(text) != KEY_CHARS or not set(text) <= set(Z85) or any(_value(group) >= 2**32 for group in groups):
        raise ValueError(f"a key of {KEY_CHARS} characters, as digenctl keygen prints it")
    return text


Key = Annotated[str, AfterValidator(is_key)]


class KeyFileConfig(Section):
    """A private key file."""

    public: Key = Field(description="The public key.")
    secret: Key = Field(description="The secret key.")


class KeyEntryConfig(Section):
    """One public key, who has it, and what it may be used for."""

    name: Annotated[str, Field(pattern=NODE_NAME, description="Name of the node, or of the person for a client.")]
    roles: Annotated[
        list[KeyRole], Field(min_length=1, description=f"What its owner may be: {', '.join(get_args(KeyRole))}.")
    ]
    public: Key = Field(description="The public key.")


class KeyListConfig(Section):
    """All keys of a cluster."""

    key: list[KeyEntryConfig] = Field(default_factory=list, description="The keys.")


def load_key_file(path: Path) -> KeyFileConfig:
    """Raises ConfigError, also where others than its owner may read the file."""
    try:
        info = path.stat()
    except OSError as error:
        raise _refused(path, f"{error.strerror}: make a key with: digenctl keygen NAME --out {path}") from None
    if not _is_credential(path, os.environ) and (why := too_open(info.st_mode, info.st_uid, os.geteuid())):
        raise _refused(path, f"{why}: chmod 600 {path}, and chown it to the user of the daemons")
    source = read_source(path)
    config, problems = validated(KeyFileConfig, source.table, source)
    require([replace(problem, value=None) for problem in problems])
    assert config is not None
    return config


def load_key_list(path: Path) -> tuple[KeyEntryConfig, ...]:
    """The listed keys: each once, one of them the driver's. Raises ConfigError."""
    source = read_source(path)
    config, problems = validated(KeyListConfig, source.table, source)
    if config is not None:
        problems = list(_complaints(config, source))
    require(problems)
    assert config is not None
    return tuple(config.key)


def too_open(mode: int, owner: int, user: int) -> str:
    """Why a private key file must not be used by `user`, "" where it may."""
    if not stat.S_ISREG(mode):
        return "is no file"
    if stat.S_IMODE(mode) not in (0o600, 0o400):
        return f"has mode {stat.S_IMODE(mode):04o}, and a private key must have 0600 (or 0400)"
    if user and owner not in (user, 0):
        return f"belongs to user {owner}, and a private key must belong to who uses it ({user})"
    return ""


def private_key_path(configured: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The credential that systemd handed over, if there is one; else what the node file says."""
    credential = Path(environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"), CREDENTIAL)
    return credential if credential.exists() else Path(configured)


def _is_credential(path: Path, environ: Mapping[str, str]) -> bool:
    """systemd guards those, with access lists that a mode does not show."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.parent == Path(str(folder))


def _complaints(config: KeyListConfig, source: Source) -> "list[Problem]":
    publics = [entry.public for entry in config.key]
    found = [
        source.problem(f"key[{number}].public", "is listed twice", value=public)
        for number, public in enumerate(publics)
        if public in publics[:number]
    ]
    drivers = [number for number, entry in enumerate(config.key) if "driver" in entry.roles]
    if not drivers:
        found.append(source.problem("key", "no key has the role driver: list the key of the box that runs the driver"))
    found += [
        source.problem(f"key[{number}].roles", "only one key has the role driver, and an earlier one has it already")
        for number in drivers[1:]
    ]
    return found


def _refused(path: Path, message: str) -> ConfigError:
    return ConfigError([Problem(where=str(path), key="", message=message)])


def _value(group: str) -> int:
    value = 0
    for char in group:
        value = value * 85 + max(Z85.find(char), 0)
    return value
