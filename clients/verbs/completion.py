"""`digenctl completion`: the shell's own way to learn the verbs. Needs no driver."""

import click

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="\b\nExamples:\n  digenctl completion bash >> ~/.bashrc\n"
    "  digenctl completion fish > ~/.config/fish/completions/digenctl.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a completion script for bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from clients.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "digenctl", "_DIGENCTL_COMPLETE").source())
