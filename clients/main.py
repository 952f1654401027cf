"""digenctl: finds the verb, imports it, and turns every error into one message and an exit code.

Nothing but click is imported before the verb is known, so that `--help` and completion answer at once.
"""

import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from digend import __version__
from digend.exitcodes import ExitCode

VERBS = {
    "submit": "Submit a job file.",
    "jobs": "List all jobs.",
    "status": "What the driver, its workers and the running job do.",
    "top": "Driver, jobs and workers on one screen, live.",
    "watch": "Follow a job until it is over.",
    "wait": "Wait until a job is over.",
    "queue": "List the micro-batches that wait for scoring or update.",
    "nodes": "List the workers.",
    "show": "All about one job or one worker.",
    "story": "Every transition of a job, worker, micro-batch, sample, lease or version.",
    "timeline": "What every worker did when, as text or as a trace.",
    "explain": "Why the trainer generated, updated or waited, and what a bubble came from.",
    "logs": "What this box has logged, of a job or a worker.",
    "doctor": "What is wrong with this side and with the running cluster.",
    "dump": "All that a bug report needs, in one file.",
    "report": "Where a job's report is.",
    "samples": "Grids of samples with prompts and rewards.",
    "compare": "Two or more jobs side by side.",
    "export": "Write what a job has learned as files for stock diffusers.",
    "fork": "Go on from a checkpoint of a job, as a new job with changes.",
    "cancel": "Cancel a job.",
    "pause": "Pause a job after its global step, so that others have its workers.",
    "resume": "Put a paused job back into the queue.",
    "priority": "Let a queued job start earlier or later.",
    "drain": "Give no new work to a node.",
    "undrain": "Give work to a drained node again.",
    "plan": "How to place and cut a job, and what that is worth.",
    "simulate": "Simulate the schedule of global steps from given times.",
    "config": "Show and check settings, and where each comes from.",
    "keygen": "Make a key for a box or a person.",
    "version": "Versions of this program and of the driver.",
    "completion": "Print a completion script for bash, zsh or fish.",
}


class LazyGroup(click.Group):
    """A group that knows its verbs' names and first lines, and imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"clients.verbs.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = get_close_matches(args[0], VERBS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f" (verbs: {', '.join(VERBS)})"
            ctx.fail(f"no verb {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


EPILOG = """\b
Examples:
  digenctl submit configs/jobs/shapes-flow-grpo.toml --watch
  digenctl status
  digenctl show job --json

\b
The driver is found by --address, else DIGEND_ADDRESS, else in the file of --node or DIGEND_NODE, else
at ipc://.digend/driver.sock in this folder, else in ~/.config/digend/digend.toml or /etc/digend
(digenctl config show --origin tells which).

\b
Exit codes: 0 ok, 1 the job failed or was cancelled, 2 usage, 3 degraded (status), 5 not found,
69 driver unreachable, 75 timed out (safe to retry with the same id), 76 the driver is of another version,
77 your key may not, 78 bad configuration.
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--address", hidden=True)
@click.option("--node", hidden=True)
@click.option("--key", hidden=True)
def cli(address: str | None, node: str | None, key: str | None) -> None:
    """Submit jobs to a digend driver and see what becomes of them."""
    # What is said before the verb is read from this context's params (clients.reaching).


def main(args: Sequence[str] | None = None) -> None:
    """Runs digenctl and ends the process with an `ExitCode`."""
    # Looking for pydantic's plugins opens the metadata of every package there is; digenctl has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        status = cli.main(arguments, prog_name="digenctl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if "--json" in arguments:
            print_error(error.exit_code, error.format_message())
        status = error.exit_code
    except click.Abort:
        click.echo("digenctl: interrupted", err=True)
        status = 128 + 2
    sys.exit(int(status or ExitCode.OK))


def print_error(code: int, message: str) -> None:
    """The error as JSON on stdout: what a program that asked for --json reads."""
    from digend.wire.views import SCHEMA_VERSION

    error = {"code": int(code), "message": message}
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "error": error}, ensure_ascii=False))


if __name__ == "__main__":
    main()
