"""Whether a node is up: the driver answers, and every worker of the node has a session. Decides nothing."""

import asyncio
from collections.abc import Collection
from uuid import uuid4

from digend.config.node import NodeConfig
from digend.net.addresses import BadAddress
from digend.net.client import Client, ClientError
from digend.net.security import Security
from digend.wire.errors import ProtocolError
from digend.wire.replies import NodeList
from digend.wire.requests import ListNodes

ASK_EVERY_S = 0.25
ANSWER_WITHIN_S = 1.0


async def wait_until_ready(node: NodeConfig, workers: Collection[str], security: Security | None = None) -> None:
    """Asks the driver again and again until it knows all of `workers` (names in the cluster) and none is lost."""
    while True:
        found = await asyncio.to_thread(present, node.address, security)
        if found is not None and found.issuperset(workers):
            return
        await asyncio.sleep(ASK_EVERY_S)


def present(address: str, security: Security | None = None) -> set[str] | None:
    """Names of the workers that have a session; None where no driver answers."""
    try:
        with Client(address, timeout_s=ANSWER_WITHIN_S, security=security) as client:
            nodes = client.request(ListNodes(request=uuid4().hex), NodeList).nodes
    except (ClientError, ProtocolError, BadAddress):
        return None
    return {view.name for view in nodes if view.state != "lost"}
