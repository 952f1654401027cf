"""The demo's job on a machine of the lab."""

from pathlib import Path
from typing import Any

from tests.e2e.cluster import short_job
from tests.lab.host import SOURCE, Host

JOB = f"{SOURCE}/configs/jobs/shapes-flow-grpo.toml"
PROMPTS = "/var/tmp/prompts.txt"


def submit(host: Host, folder: Path, job: str, *overrides: str) -> None:
    """A job of seconds, unless `overrides` say otherwise. `folder` is one for the test's own files."""
    short = [each.replace(str(folder / "prompts.txt"), PROMPTS) for each in short_job(folder)]
    host.write(PROMPTS, (folder / "prompts.txt").read_text())
    options = [word for each in (*short, *overrides) for word in ("--set", each)]
    host.run("/opt/digend/bin/digenctl", "submit", JOB, "--id", job, *options)


def view(host: Host, job: str) -> dict[str, Any]:
    """The job's line of `digenctl jobs`."""
    found: dict[str, Any] = host.digenctl("show", "job", job)["job"]
    return found
