"""Which key a client takes, where the user's own may not be looked for."""

import os
from pathlib import Path

import pytest

from clients.admission import find_security


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else: run as root")
def test_a_home_of_somebody_else_is_no_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "digend").mkdir(parents=True)
    home.chmod(0o700)
    tmp_path.chmod(0o755)
    environ = {"XDG_CONFIG_HOME": str(home)}
    os.seteuid(65534)
    try:
        assert find_security(None, None, "tcp://192.0.2.1:5757", environ) is None
    finally:
        os.seteuid(0)
