"""Every way a verb can fail, as an exit code and a message. The codes are `digend.exitcodes.ExitCode`.

Imported only when something failed, as it names the errors of packages that a verb may not have needed.
"""

from dataclasses import dataclass

from clients.jobs import AmbiguousId, BadSubject, NotFound
from digend.config.errors import ConfigError
from digend.exitcodes import ExitCode
from digend.net.addresses import BadAddress, NeedsKeys
from digend.net.client import DriverUnreachable, NotAdmitted, RequestFailed, TimedOut
from digend.wire.errors import ProtocolError, TooLarge


@dataclass(frozen=True, slots=True)
class Failure:
    """`hint` is the next step, where there is a usual one."""

    code: int
    message: str
    hint: str = ""


_START = "start one with: digend up NODE.toml (or name another: --address, --node, DIGEND_ADDRESS)"
_ASK = "make a key with `digenctl keygen`, and ask who runs the driver to list it in keys.toml (docs/operate.md)"
_RETRY = "the request may have been carried out; it is safe to repeat it (a submit: with --id)"

_KNOWN: tuple[tuple[type[Exception], ExitCode, str], ...] = (
    (ConfigError, ExitCode.BAD_CONFIG, ""),
    (NotFound, ExitCode.NOT_FOUND, ""),
    (BadSubject, ExitCode.USAGE, ""),
    (AmbiguousId, ExitCode.USAGE, ""),
    (NeedsKeys, ExitCode.BAD_CONFIG, ""),
    (BadAddress, ExitCode.USAGE, ""),
    (NotAdmitted, ExitCode.NOT_PERMITTED, _ASK),
    (TooLarge, ExitCode.USAGE, ""),
    (ProtocolError, ExitCode.OTHER_PROTOCOL, ""),
    (TimedOut, ExitCode.TIMED_OUT, _RETRY),
    (TimeoutError, ExitCode.TIMED_OUT, ""),
    (DriverUnreachable, ExitCode.DRIVER_UNREACHABLE, _START),
)


def explained(error: Exception) -> Failure | None:
    """The failure that an error means; None for one that is a defect of this program."""
    if isinstance(error, RequestFailed):
        return Failure(error.code, error.message)
    for kind, code, hint in _KNOWN:
        if isinstance(error, kind):
            return Failure(code, str(error), hint)
    return None
