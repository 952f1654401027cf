"""Which key digenctl shows to the driver: an option, the environment, the settings, or the user's own folder.

Must not import zmq before a key is found: most people have none, and digenctl starts fast.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from digend.config.layers import user_file
from digend.net.addresses import BadAddress, is_local, resolve

if TYPE_CHECKING:
    from digend.net.security import Security

KEY_VARIABLE = "DIGEND_KEY"
KEY_FILE, LIST_FILE = "key.toml", "keys.toml"

KeyPaths = tuple[str, str]
"""The private key file, and the list."""


def find_security(
    key: str | None, configured: KeyPaths | None, address: str, environ: Mapping[str, str] = os.environ
) -> "Security | None":
    """The first that is given of: the private key file `key`, that of DIGEND_KEY, what the settings say (`configured`),
    the user's own, ~/.config/digend/key.toml. The list is keys.toml beside it, where settings do not name another.

    The user's own is for other machines only, or where the settings' key belongs to somebody else. Raises ConfigError.
    """
    given = key or environ.get(KEY_VARIABLE)
    if given:
        return _load(*_beside(Path(given).expanduser()))
    own = user_file(environ).with_name(KEY_FILE)
    has_own = _is_there(own)
    if configured is not None and (os.access(configured[0], os.R_OK) or not has_own):
        return _load(*configured)
    if configured is not None:
        return _load(str(own), configured[1])
    return _load(*_beside(own)) if has_own and not _stays_here(address) else None


def _is_there(path: Path) -> bool:
    """Not where it may not be looked for: under sudo and setpriv, HOME may be somebody else's."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _beside(private: Path) -> KeyPaths:
    return str(private), str(private.with_name(LIST_FILE))


def _load(private: str, allowed: str) -> "Security":
    from digend.config.node import KeysNodeConfig
    from digend.net.security import Security

    return Security.load(KeysNodeConfig(private=private, allowed=allowed), {})


def _stays_here(address: str) -> bool:
    try:
        return is_local(resolve(address, keyed=True))
    except BadAddress:
        return True
