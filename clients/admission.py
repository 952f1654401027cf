"""Which key digenctl shows to the driver: an option, the environment, a node file, or the user's own folder.

Must not import zmq before a key is found: most people have none, and digenctl starts fast.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from digend.net.addresses import BadAddress, is_local, resolve

if TYPE_CHECKING:
    from digend.config.node import KeysNodeConfig
    from digend.net.security import Security

OWN_FOLDER = "~/.config/digend"
"""Where a person's key.toml and keys.toml are."""

KEY_FILE, LIST_FILE = "key.toml", "keys.toml"


def find_security(
    key: str | None, configured: "KeysNodeConfig | None", address: str, environ: Mapping[str, str] = os.environ
) -> "Security | None":
    """The first that is given of: the private key file `key`, DIGEND_KEY, what the node file says (`configured`), the
    user's own. The list of public keys is `keys.toml` beside it, unless the node file names it.

    Where keys are found but not asked for, they are for other machines only. Raises ConfigError.
    """
    given = key or environ.get("DIGEND_KEY")
    if given:
        return _load(Path(given).expanduser())
    own = Path(OWN_FOLDER, KEY_FILE).expanduser()
    if configured is not None and not (own.exists() and not os.access(configured.private, os.R_OK)):
        from digend.net.security import Security

        return Security.load(configured)
    return _load(own) if own.exists() and (configured is not None or not _stays_here(address)) else None


def _load(private: Path) -> "Security":
    from digend.config.node import KeysNodeConfig
    from digend.net.security import Security

    return Security.load(KeysNodeConfig(private=str(private), allowed=str(private.with_name(LIST_FILE))), {})


def _stays_here(address: str) -> bool:
    try:
        return is_local(resolve(address, keyed=True))
    except BadAddress:
        return True
