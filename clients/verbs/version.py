"""`digenctl version`."""

from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from digend import __version__
from digend.wire.messages import PROTOCOL


@verb("  digenctl version --json")
def command(driver: Digend, output: Output) -> None:
    """Versions of this program and of the driver; only its own where no driver answers (exit code 69)."""
    output.line(f"digenctl  {__version__}, protocol {PROTOCOL}")
    version = driver.version()
    output.document_if_json(client={"digenctl": __version__, "protocol": PROTOCOL}, driver=version)
    output.line(f"driver    {version.driver}, protocol {version.protocol}, Python {version.python}")
