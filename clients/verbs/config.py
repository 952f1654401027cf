"""`digenctl config`: what is set, where it comes from, whether it is right. Needs no driver and no torch."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from clients import completing
from clients.output import Output
from clients.verb import failed
from digend.exitcodes import ExitCode

if TYPE_CHECKING:
    from digend.config.errors import Problem
    from digend.config.inspection import Setting
    from digend.config.layers import Places

_OPTIONS = (
    click.option(
        "--node",
        metavar="NODE.toml",
        type=click.Path(),
        help="A node file, in place of those in /etc/digend and your own.",
    ),
    click.option("--system", is_flag=True, help="What units read: the files in /etc/digend, not your own."),
    click.option(
        "--set",
        "flags",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=completing.set_settings,
        help="Change a setting; may be repeated.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version."),
)


@click.group(
    "config",
    epilog="\b\nExamples:\n  digenctl config show --origin\n  digenctl config check\n  digenctl config example",
)
def command() -> None:
    """Show and check settings, and where each comes from.

    Strongest first: flags, DIGEND_* variables, ~/.config/digend/digend.toml, /etc/digend/conf.d/*.toml,
    /etc/digend/digend.toml, defaults. A file given by --node or DIGEND_NODE takes the place of all other files.
    """


def _reading(example: str) -> Callable[[Callable[..., int]], click.Command]:
    """A verb that reads settings: gets `places`, `output` and its own arguments."""

    def decorate(function: Callable[..., int]) -> click.Command:
        @wraps(function)
        def run(node: str | None, system: bool, flags: tuple[str, ...], as_json: bool, **rest: Any) -> None:
            from digend.config.layers import Places

            context = click.get_current_context()
            node = node or context.find_root().params.get("node")
            output = Output(as_json=as_json)
            try:
                places = Places.of(node, system=system, flags=flags, environ=os.environ)
                code = function(places, output, **rest)
            except click.ClickException:
                raise
            except Exception as error:
                code = failed(error, output)
            context.exit(int(code))

        wrapped: Callable[..., None] = run
        for option in reversed(_OPTIONS):
            wrapped = option(wrapped)
        return click.command(function.__name__.lstrip("_"), epilog=f"\b\nExamples:\n{example}")(wrapped)

    return decorate


@_reading(
    "  digenctl config show --origin\n  digenctl config show timing\n"
    "  DIGEND_LOG_LEVEL=debug digenctl config show log_level"
)
@click.argument("key", metavar="[SECTION.KEY]", required=False, shell_complete=completing.settings)
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
def _show(places: "Places", output: Output, key: str | None, origin: bool) -> int:
    """Every effective setting, or those of one key or table. Secrets are masked."""
    from clients.address import local_layers
    from digend.config.inspection import names, settings
    from digend.config.loader import load_settings, warnings

    loaded = load_settings(places, more=local_layers(places))
    _warn(warnings(loaded.layers))
    shown = _chosen(list(settings(loaded.config, loaded.layers)), key)
    if output.as_json:
        output.document(files=names(places, os.environ), settings=shown)
    else:
        columns = ("KEY", "VALUE", "ORIGIN") if origin else ("KEY", "VALUE")
        output.table(columns, [(each.key, _text(each), each.origin)[: len(columns)] for each in shown])
    return ExitCode.OK


def _chosen(found: list["Setting"], key: str | None) -> list["Setting"]:
    """Those of a key or table. A name that is neither is a usage error."""
    from digend.config.errors import nearest

    chosen = [each for each in found if key is None or each.key == key or each.key.startswith(f"{key}.")]
    if not chosen:
        known = {part for each in found for part in (each.key, each.key.partition(".")[0])}
        near = nearest(str(key), sorted(known))
        raise click.UsageError(f"no setting {key!r}" + (f"; did you mean {near}?" if near else ""))
    return chosen


def _text(setting: "Setting") -> str:
    from digend.config.emit import toml_value

    if setting.secret:
        return str(setting.value)
    return "none" if setting.value is None else toml_value(setting.value)


@_reading("  digenctl config check\n  digenctl config check job.toml node.toml\n  digenctl config check --system")
@click.argument("files", metavar="[FILES]...", nargs=-1, type=click.Path())
def _check(places: "Places", output: Output, files: tuple[str, ...]) -> int:
    """Find all mistakes of all files: those given (job or node files), else those that are read here.

    Ends with 78 where there is one.
    """
    problems, good = _of_files(files) if files else _of_layers(places)
    if output.as_json:
        output.document(problems=problems, files=good)
    for problem in problems:
        output.hint(str(problem))
    if not problems:
        output.line("\n".join(f"ok  {each}" for each in good) or "ok  no files: defaults")
    return ExitCode.BAD_CONFIG if problems else ExitCode.OK


def _of_files(files: Sequence[str]) -> tuple[list["Problem"], list[str]]:
    from clients.config_files import problems_of

    return [problem for path in files for problem in problems_of(path)], list(files)


def _of_layers(places: "Places") -> tuple[list["Problem"], list[str]]:
    from clients.address import local_layers
    from digend.config.inspection import check_layers, names
    from digend.config.loader import warnings

    problems, layers = check_layers(places, os.environ, local_layers(places))
    _warn(warnings(layers))
    return problems, names(places, os.environ)


def _warn(messages: Sequence[str]) -> None:
    for message in messages:
        click.echo(f"digenctl: {message}", err=True)


@click.command("schema", epilog="\b\nExamples:\n  digenctl config schema job > job.schema.json")
@click.argument("kind", type=click.Choice(["job", "node"]))
def _schema(kind: str) -> None:
    """Print the JSON schema of job files or node files, for editors.

    An editor with TOML support (taplo) takes it by a first line `#:schema PATH` in the file.
    """
    from digend.config.schema import schema_text

    click.echo(schema_text(kind), nl=False)


@click.command("example", epilog="\b\nExamples:\n  digenctl config example > /etc/digend/digend.toml")
def _example() -> None:
    """Print every setting with its default, commented out."""
    from digend.config.example import commented_defaults

    click.echo(commented_defaults(), nl=False)


for each in (_show, _check, _schema, _example):
    command.add_command(each)
