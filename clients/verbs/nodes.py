"""`digenctl nodes`: one line a worker."""

from collections.abc import Sequence

from clients.api import Digend
from clients.columns import Column
from clients.output import Output
from clients.verb import tabular, verb
from clients.waiting_bytes import spooled
from clients.words import age, size
from digend.wire.views import NodeView

NONE = "no workers have joined; the next step: digend up NODE.toml"


def doing(node: NodeView) -> str:
    """The task a worker has; a dash where it has none."""
    return node.doing if node.doing and not node.reason else "-"


def _device(node: NodeView) -> str:
    return f"{node.device}: {node.health}" if node.health else node.device


def role(node: NodeView) -> str:
    """`trainer`, or `trainer 0 of 4`."""
    return node.role if node.rank is None else f"{node.role} {node.rank} of {node.ranks}"


COLUMNS = (
    Column("worker", lambda node: node.name),
    Column("role", role),
    Column("node", lambda node: node.node, wide=True),
    Column("host", lambda node: node.host or "-", wide=True),
    Column("state", lambda node: node.state),
    Column("doing", doing),
    Column("heartbeat", lambda node: f"{age(node.heartbeat_age_s)} ago"),
    Column("tasks", lambda node: str(node.tasks_done)),
    Column("device", _device),
    Column("traffic", lambda node: node.traffic or "-"),
    Column("held", lambda node: size(node.held_bytes), wide=True),
    Column("spooled", spooled, wide=True),
    Column("pid", lambda node: str(node.pid)),
    Column("session", lambda node: node.session or "-", wide=True),
    Column(
        "versions", lambda node: " ".join(f"{name}={is_}" for name, is_ in sorted(node.versions.items())), wide=True
    ),
    Column("reason", lambda node: node.reason or "-"),
)


@verb(
    "  digenctl nodes\n  digenctl nodes -o worker,state,reason\n  digenctl nodes -o +versions\n  digenctl nodes --json"
)
@tabular(COLUMNS)
def command(driver: Digend, output: Output) -> None:
    """List the workers: what each is DOING, or the REASON why it does nothing, and when it was last heard."""
    nodes = driver.nodes()
    output.document_if_json(nodes=nodes)
    print_nodes(output, nodes)


def print_nodes(output: Output, nodes: Sequence[NodeView]) -> None:
    if not nodes:
        output.hint(NONE)
    else:
        output.listing(COLUMNS, nodes)
