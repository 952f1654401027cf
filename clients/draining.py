"""Waiting until a node is drained, with what is still in the way of it. Ctrl-C ends the waiting, not the drain."""

import time

from clients.api import POLL_S, Digend
from clients.output import Output
from clients.watching import INTERRUPTED
from digend.exitcodes import ExitCode
from digend.wire.replies import Changed
from digend.wire.views import NodeView


def wait_until_drained(driver: Digend, output: Output, changed: Changed) -> int:
    """Says whenever something else is in the way. One document at the end with --json."""
    target, said = changed.name, ""
    try:
        while busy := [node for node in driver.nodes() if _of(node, target) and node.state == "draining"]:
            now = "; ".join(f"{node.name}: {_in_the_way(node)}" for node in busy)
            if now != said:
                output.line(f"draining  {now}")
                said = now
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        output.hint(f"\nstopped waiting; {target} goes on draining (take it back: digenctl undrain {target})")
        return INTERRUPTED
    output.document_if_json(id=target, state="drained", reason=changed.reason, dry_run=False, changes=changed.changes)
    output.line(f"{target} is drained" + (f": {changed.reason}" if changed.reason else ""))
    return ExitCode.OK


def _of(node: NodeView, target: str) -> bool:
    return target in (node.name, node.node)


def _in_the_way(node: NodeView) -> str:
    """The task that it has, else what of its others still need."""
    held = node.reason.rpartition("; ")[2] if "; " in node.reason else ""
    return held if node.doing in ("", "-", "nothing to do") and held else node.doing
