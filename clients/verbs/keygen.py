"""`digenctl keygen`: a key pair for a box or a person, and the lines of the list. Needs no driver."""

import getpass
import os
import re
from pathlib import Path

import click

from clients.admission import KEY_FILE
from clients.output import Output
from clients.verb import failed
from digend.exitcodes import ExitCode

EXAMPLES = """\b
Examples:
  digenctl keygen --out ~/.config/digend/key.toml
  digenctl keygen box-b --role generator --role reward --out key-b.toml >> keys.toml
"""
ROLES = ("driver", "generator", "trainer", "reward", "recorder", "client")


@click.command("keygen", epilog=EXAMPLES)
@click.argument("name", required=False)
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="What its owner may be; repeatable.  [default: client]",
)
@click.option("--out", metavar="KEY.toml", help="The private key file.  [default: ~/.config/digend/key.toml]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version.")
@click.pass_context
def command(context: click.Context, name: str | None, roles: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Make a key for a box or a person.

    Writes the private key, which stays where it is, with mode 0600, and never over another. Prints what belongs into
    keys.toml, the list of public keys, on every box. NAME is the node's name in its settings; without it, yours.
    """
    output = Output(as_json=as_json)
    try:
        code = _make(output, name or getpass.getuser(), list(dict.fromkeys(roles)) or ["client"], _path(out))
    except Exception as error:
        code = failed(error, output)
    context.exit(int(code))


def _path(out: str | None) -> Path:
    from digend.config.layers import user_file

    return Path(out).expanduser() if out else user_file(os.environ).with_name(KEY_FILE)


def _make(output: Output, name: str, roles: list[str], path: Path) -> int:
    from digend.net.security import new_pair, write_pair

    _checked(name)
    pair = new_pair()
    try:
        write_pair(pair, path, name)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already, and a key is never overwritten: --out another") from None
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror) from None
    output.document_if_json(name=name, roles=roles, public=pair.public, private_file=str(path))
    quoted = ", ".join(f'"{role}"' for role in roles)
    output.line(f'[[key]]\nname = "{name}"\nroles = [{quoted}]\npublic = "{pair.public}"')
    output.hint(
        f"{path} has the private key: it never leaves this box. The lines above go into keys.toml of every box."
    )
    return ExitCode.OK


def _checked(name: str) -> None:
    from digend.config.node import NODE_NAME

    if not re.fullmatch(NODE_NAME, name):
        raise click.UsageError(f"{name!r} is no name: letters, digits, dot, underscore and dash, at most 63")
