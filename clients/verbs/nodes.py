"""`digenctl nodes`: one line a worker."""

from collections.abc import Sequence

from clients.api import Digend
from clients.output import Output
from clients.verb import no_header, verb
from clients.words import age
from digend.wire.views import NodeView

COLUMNS = ("WORKER", "ROLE", "STATE", "DOING", "HEARTBEAT", "TASKS", "DEVICE", "PID")
NONE = "no workers have joined; the next step: digend up NODE.toml"


@verb("  digenctl nodes\n  digenctl nodes --json")
@no_header
def command(driver: Digend, output: Output) -> None:
    """List the workers, with what they do and when they were last heard."""
    nodes = driver.nodes()
    output.document_if_json(nodes=nodes)
    print_nodes(output, nodes)


def print_nodes(output: Output, nodes: Sequence[NodeView]) -> None:
    if not nodes:
        output.hint(NONE)
    else:
        output.table(COLUMNS, [_row(node) for node in nodes])


def _row(node: NodeView) -> list[str]:
    heard = f"{age(node.heartbeat_age_s)} ago"
    return [
        node.name,
        node.role,
        node.state,
        doing(node),
        heard,
        str(node.tasks_done),
        f"{node.device}: {node.health}" if node.health else node.device,
        str(node.pid),
    ]


def doing(node: NodeView) -> str:
    """What a worker does, or what it waits for."""
    waits = node.state == "idle" and node.doing not in ("", "nothing to do")
    return f"waits: {node.doing}" if waits else node.doing or "-"
