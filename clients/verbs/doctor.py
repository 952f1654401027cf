"""`digenctl doctor`: what is wrong with the client's side and the running cluster."""

from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from digend.exitcodes import ExitCode


@verb("  digenctl doctor\n  digenctl doctor --node node.toml\n  digenctl doctor --json", patient=True)
def command(driver: Digend, output: Output) -> ExitCode:
    """Look for what is wrong: address, versions across nodes, clocks, disks, workers, GPUs, stale checkpoints.

    `digend doctor NODE.toml` looks at a box before its daemons are started; this looks at what runs. Ends with 0 where
    all is well, 3 where something is odd, 69 where no driver answers, 78 where something will not work.
    """
    from clients.examination import Examination

    examination = Examination(driver)
    for finding in examination.findings():
        output.line(f"{finding.level:<8}{finding.what}: {finding.message}")
    output.document_if_json(findings=examination.found)
    return examination.code
