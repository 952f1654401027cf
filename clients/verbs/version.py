"""`digenctl version`."""

from clients.api import Digend
from clients.output import Output
from clients.verb import failed, verb
from digend import __version__
from digend.exitcodes import ExitCode
from digend.net.client import DriverUnreachable, TimedOut
from digend.wire.protocol import PROTOCOL


# Patient, so that its own version is said before anybody looks whether there is a driver.
@verb("  digenctl version --json", patient=True)
def command(driver: Digend, output: Output) -> int:
    """Versions of this program and of the driver; only its own where no driver answers (exit code 69)."""
    client = {"digenctl": __version__, "protocol": PROTOCOL}
    output.line(f"digenctl  {__version__}, protocol {PROTOCOL}")
    try:
        driver.require_socket()
        version = driver.version()
    except (DriverUnreachable, TimedOut) as error:
        return failed(error, output, client=client)
    output.document_if_json(client=client, driver=version)
    output.line(f"driver    {version.driver}, protocol {version.protocol}, Python {version.python}")
    return ExitCode.OK
