"""What all verbs share: the options that find the driver, --json, -o, and errors turned into exit codes.

A verb is a function `(driver, output, **its own arguments) -> int | None`; `verb` makes a click command of it. One that
lists something is `@tabular(COLUMNS)` besides, and prints with `output.listing(COLUMNS, items)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from clients import completing
from clients.amounts import Amount
from clients.columns import WIDE, Column, UnknownColumn, columns_of
from clients.output import Output
from clients.reaching import reach
from digend.exitcodes import ExitCode
from digend.printable import MAX_CHARS, printable

if TYPE_CHECKING:
    from clients.api import Digend

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--address", metavar="ADDRESS", help="The driver, ipc://PATH or tcp://HOST:PORT."),
    click.option("--node", metavar="NODE.toml", type=click.Path(), help="A node file that says where the driver is."),
    click.option("--key", metavar="KEY.toml", type=click.Path(), help="Your private key, for a driver on another box."),
    click.option(
        "--reply-timeout",
        type=Amount(0.05, 86400),
        help="Seconds to wait for one reply of the driver.  [default: client.reply_timeout_s of the settings, 5.0]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version."),
)
overriding = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completing.job_keys,
    help="Change a key of the job; may be repeated.",
)
dry = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")


def brief(ctx: click.Context, param: click.Parameter, why: str) -> str:
    """A reason as the driver takes one. Raises click.BadParameter for one that is too long."""
    if len(why) > MAX_CHARS:
        raise click.BadParameter(f"{len(why):,} characters, and at most {MAX_CHARS:,} are taken", ctx, param)
    return why


_no_header = click.option("--no-header", is_flag=True, help="Leave out the first line of tables.")


def tabular(columns: Sequence[Column]) -> Callable[[Function], Function]:
    """-o and --no-header, for a verb that lists `columns`. What -o says is checked before a driver is asked."""

    def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        try:
            columns_of(columns, value)
        except UnknownColumn as error:
            raise click.BadParameter(str(error), ctx, param) from error
        return value

    def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        plus = "+" * last.startswith("+")
        names = [*(column.name for column in columns), WIDE]
        return [before + comma + plus + name for name in names if name.startswith(last.lstrip("+"))]

    chosen = click.option(
        "-o", "--columns", metavar="COLUMNS", callback=checked, shell_complete=offered, help=_columns_help(columns)
    )
    return lambda function: chosen(_no_header(function))


def _columns_help(columns: Sequence[Column]) -> str:
    usual = ", ".join(column.name for column in columns if not column.wide)
    wide = ", ".join(column.name for column in columns if column.wide)
    more = f" More: {wide}." if wide else ""
    return f"Which columns: a,b these; +a,b the usual ones and these; wide all of them. Usual: {usual}.{more}"


def verb(example: str, *, name: str = "", patient: bool = False) -> Callable[[Function], click.Command]:
    """A command with `example` in its help. `patient` waits for a driver that is not there yet."""

    def decorate(function: Function) -> click.Command:
        @wraps(function)
        def run(
            address: str | None, node: str | None, key: str | None, reply_timeout: float | None, **rest: Any
        ) -> None:
            context = click.get_current_context()
            output = Output(rest.pop("as_json"), not rest.pop("no_header", False), rest.pop("columns", None))
            try:
                reached = reach(context, address, node, key)
                for warning in reached.settings.warnings:
                    click.echo(f"digenctl: {warning}", err=True)
                output = replace(output, header=output.header and reached.settings.header)
                code = _call(function, partial(reached.connect, reply_timeout), patient, output, rest)
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
    function: Function, connect: "Callable[[], Digend]", patient: bool, output: Output, arguments: dict[str, Any]
) -> int | None:
    with connect() as driver:
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
    click.echo(printable(f"digenctl: {failure.message}", keep="\n\t"), err=True)
    if failure.hint and not output.as_json:
        click.echo(failure.hint, err=True)
    if output.as_json:
        output.document(**about, error={"code": failure.code, "message": failure.message})
    return failure.code
