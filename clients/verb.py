"""What all verbs share: the options that find the driver, --json, and errors turned into exit codes.

A verb is a function `(driver, output, **its own arguments) -> int | None`; `verb` makes a click command of it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from clients.address import find_address
from clients.output import Output
from digend.exitcodes import ExitCode

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--address", metavar="ADDRESS", help="The driver, ipc://PATH or tcp://127.0.0.1:PORT."),
    click.option("--node", metavar="NODE.toml", help="A node file that says where the driver is."),
    click.option(
        "--reply-timeout",
        type=click.FloatRange(min=0.05),
        default=5.0,
        show_default=True,
        envvar="DIGEND_REPLY_TIMEOUT",
        help="Seconds to wait for one reply of the driver.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version."),
)
no_header = click.option("--no-header", is_flag=True, help="Leave out the first line of tables.")


def verb(example: str, *, name: str = "", patient: bool = False) -> Callable[[Function], click.Command]:
    """A command with `example` in its help. `patient` waits for a driver that is not there yet."""

    def decorate(function: Function) -> click.Command:
        @wraps(function)
        def run(address: str | None, node: str | None, reply_timeout: float, **rest: Any) -> None:
            context = click.get_current_context()
            given = (context.find_root().obj or {}) if address is None and node is None else {}
            output = Output(as_json=rest.pop("as_json"), header=not rest.pop("no_header", False))
            try:
                where = find_address(address or given.get("address"), node or given.get("node"))
                code = _call(function, where, reply_timeout, patient, output, rest)
            except click.ClickException:
                raise
            except Exception as error:
                code = failed(error, output)
            context.exit(int(code or ExitCode.OK))

        wrapped: Function = run
        for option in reversed(_OPTIONS):
            wrapped = option(wrapped)
        return click.command(name or function.__module__.rpartition(".")[2], epilog=f"\b\nExamples:\n{example}")(
            wrapped
        )

    return decorate


def _call(
    function: Function, address: str, timeout_s: float, patient: bool, output: Output, arguments: dict[str, Any]
) -> int | None:
    from clients.api import Digend

    with Digend(address, timeout_s) as driver:
        if not patient:
            driver.require_socket()
        code: int | None = function(driver, output, **arguments)
        return code


def failed(error: Exception, output: Output, **about: object) -> int:
    """Says what went wrong, on stderr and with --json on stdout too, after `about`. Raises `error` again if it is a
    defect."""
    from clients.failures import explained

    failure = explained(error)
    if failure is None:
        raise error
    click.echo(f"digenctl: {failure.message}", err=True)
    if failure.hint and not output.as_json:
        click.echo(failure.hint, err=True)
    if output.as_json:
        output.document(**about, error={"code": failure.code, "message": failure.message})
    return failure.code
