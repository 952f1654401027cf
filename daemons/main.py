"""`digend`: one program for every daemon. Parses and validates before it imports anything heavy.

Owns the command line, nothing else. Every command ends with a code of `digend.exitcodes`.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from digend import __version__
from digend.exitcodes import ExitCode

if TYPE_CHECKING:
    from digend.config.layers import Places
    from digend.config.loader import Loaded
    from digend.config.node import NodeConfig

NODE = click.option(
    "--node", "node_file", metavar="NODE.toml", help="A node file, in place of those in /etc/digend and your own."
)
NODE_ARGUMENT = click.argument("node_file", metavar="[NODE.toml]", required=False)
_LAYERS = (
    click.option("--system", is_flag=True, help="Read the files in /etc/digend only, not your own: as units do."),
    click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable."),
)
SLOT = click.option("--slot", default=0, show_default=True, help="Which of the node's processes of this role.")
LIFELINE = click.option("--lifeline", type=int, hidden=True, help="Pipe that `digend up` holds the other end of.")


EPILOG = """\b
Examples:
  digend doctor configs/nodes/laptop.toml
  digend up configs/nodes/laptop.toml

\b
Jobs are submitted with digenctl. Exit codes of daemons: 0 or 42 asked to stop, 78 bad configuration.
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Daemons that post-train diffusion and flow-matching generators. All run in the foreground.

    `up` starts the others; each can also be started alone.
    """


def main() -> None:
    """Entry point."""
    sys.exit(cli(prog_name="digend", standalone_mode=True))


def layered(function: Callable[..., None]) -> Callable[..., None]:
    """A command that says which layers of settings it reads: `places` instead of what was on the command line."""

    @wraps(function)
    def run(node_file: str | None, system: bool, flags: tuple[str, ...], **rest: Any) -> None:
        from digend.config.layers import Places

        function(Places.of(node_file, system=system, flags=flags, environ=os.environ), **rest)

    wrapped: Callable[..., None] = run
    for option in reversed(_LAYERS):
        wrapped = option(wrapped)
    return wrapped


def read_settings(places: "Places") -> "Loaded":
    """The settings of this box; exit code 78 where they cannot be used."""
    from digend.config.errors import ConfigError
    from digend.config.loader import load_settings, warnings

    try:
        loaded = load_settings(places)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(ExitCode.BAD_CONFIG)
    for warning in warnings(loaded.layers):
        click.echo(warning, err=True)
    return loaded


def _run(places: "Places", lifeline: int | None, run: "Callable[[NodeConfig, Callable[[], NodeConfig]], int]") -> None:
    from daemons.reload import remember_early

    remember_early()
    node = read_settings(places).config
    if lifeline is not None:
        from daemons.lifeline import hold

        hold(lifeline)

    def reread() -> "NodeConfig":
        from digend.config.loader import load_settings

        return load_settings(places).config

    sys.exit(run(node, reread))


@cli.command()
@NODE
@LIFELINE
@layered
def driver(places: "Places", lifeline: int | None) -> None:
    """The broker: jobs, queues, leases. One a cluster.

    Owns policy versions and the journal too: what it decided survives its end.
    """

    def run(node: "NodeConfig", reread: "Callable[[], NodeConfig]") -> int:
        from daemons.driver.main import run as run_driver

        return run_driver(node, reread)

    _run(places, lifeline, run)


@cli.command()
@NODE
@LIFELINE
@layered
def recorder(places: "Places", lifeline: int | None) -> None:
    """Writes curves, pictures, reports. One a cluster."""

    def run(node: "NodeConfig", reread: "Callable[[], NodeConfig]") -> int:
        from daemons.recorder.main import run as run_recorder

        return run_recorder(node, reread)

    _run(places, lifeline, run)


@cli.command()
@NODE
@SLOT
@LIFELINE
@layered
def generator(places: "Places", slot: int, lifeline: int | None) -> None:
    """Encodes prompts, rolls out, decodes. One a GPU.

    Scores too where the reward is colocated.
    """

    def run(node: "NodeConfig", reread: "Callable[[], NodeConfig]") -> int:
        from daemons.generator import run as run_generator

        return run_generator(node, slot, reread)

    _run(places, lifeline, run)


@cli.command()
@NODE
@SLOT
@LIFELINE
@layered
def trainer(places: "Places", slot: int, lifeline: int | None) -> None:
    """Loss, gradients, optimizer, publishing.

    Generates too where the job says so.
    """

    def run(node: "NodeConfig", reread: "Callable[[], NodeConfig]") -> int:
        from daemons.trainer import run as run_trainer

        return run_trainer(node, slot, reread)

    _run(places, lifeline, run)


@cli.command()
@NODE
@SLOT
@LIFELINE
@layered
def reward(places: "Places", slot: int, lifeline: int | None) -> None:
    """Scores samples where the reward is dedicated."""

    def run(node: "NodeConfig", reread: "Callable[[], NodeConfig]") -> int:
        from daemons.reward import run as run_reward

        return run_reward(node, slot, reread)

    _run(places, lifeline, run)


@cli.command()
@NODE_ARGUMENT
@click.option("--ready-file", type=click.Path(), help="Written once the driver answers and all workers have joined.")
@click.option("--pid-file", type=click.Path(), help="Holds the process id while `up` runs.")
@layered
def up(places: "Places", ready_file: str | None, pid_file: str | None) -> None:
    """Start, watch and restart what NODE.toml names.

    Without it, what the files in /etc/digend and your own name.
    Ctrl-C or SIGTERM stops all of it in order, a second one at once. Ends with 0 when asked to stop, with 78 where the
    configuration of one was refused before all were ready, or that of the driver later.
    """
    node = read_settings(places).config
    from daemons.up import run

    sys.exit(run(node, places, ready_file=ready_file, pid_file=pid_file))


@cli.command()
@NODE_ARGUMENT
@layered
def doctor(places: "Places") -> None:
    """Check that this box can run what NODE.toml names.

    Looks at python, packages, devices, keys, address, disk. Ends with 0 where all is well, 3 where something is odd,
    78 where something will not work.
    """
    node = read_settings(places).config
    from daemons.doctor import run

    sys.exit(run(node))


@cli.command("node-instances")
@NODE_ARGUMENT
@click.option("--keys", is_flag=True, help="Read the list of keys too: whatever a reload would refuse is told here.")
@layered
def node_instances(places: "Places", keys: bool) -> None:
    """List the systemd units that run what NODE.toml names.

    Without it, what the files of this box name: `--system`, as systemd reads them.
    """
    from daemons.unit_files import instances

    node = read_settings(places).config
    if keys and node.keys is not None:
        _require_keys(node.keys.allowed)
    for unit in instances(node):
        click.echo(unit)


def _require_keys(path: str) -> None:
    """Ends with 78 where the list of keys would be refused."""
    from digend.config.errors import ConfigError
    from digend.config.keyfiles import load_key_list

    try:
        load_key_list(Path(path))
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(ExitCode.BAD_CONFIG)


@cli.command("install-units")
@click.option(
    "--prefix", default="/usr/local", show_default=True, help="Files go to lib/systemd and lib/sysusers.d of it."
)
@click.option("--user", default="digend", show_default=True, help="User and group of the daemons.")
@click.option("--digend", metavar="PATH", help="The program that units start. [default: this one]")
def install_units(prefix: str, user: str, digend: str | None) -> None:
    """Write systemd units for what /etc/digend names."""
    from daemons.unit_files import CannotInstall, install, next_steps

    program = Path(digend) if digend else Path(sys.executable).with_name("digend")
    try:
        for path in install(Path(prefix), user, program):
            click.echo(path)
    except CannotInstall as error:
        click.echo(str(error), err=True)
        sys.exit(ExitCode.BAD_CONFIG)
    except OSError as error:
        click.echo(f"cannot write {error.filename}: {error.strerror}", err=True)
        sys.exit(ExitCode.TARGET_FAILED)
    click.echo(next_steps(user), err=True)


@cli.command()
def version() -> None:
    """Versions of digend, torch and the like."""
    from daemons.worker.versions import installed_versions

    versions = installed_versions()
    click.echo(f"digend {versions.digend}, python {versions.python}")
    for name, number in versions.numbers.items():
        click.echo(f"{name} {number}")


if __name__ == "__main__":
    main()
