"""Where torch.distributed of this process may meet others: off loopback only by an interface that the settings name."""

from ipaddress import ip_address


class OffLoopback(Exception):
    """The others meet on the network, and this process has no interface configured for that."""


def check_place(store: str, meet_at: str, role: str, whose: str) -> None:
    """`store`: host:port at which others meet; `meet_at`: where this process listens. Raises OffLoopback."""
    host = store.rpartition(":")[0].strip("[]")
    if not ip_address(host).is_loopback and ip_address(meet_at).is_loopback:
        raise OffLoopback(
            f"{whose} meet at {store}, and torch.distributed of this box is bound to loopback: set "
            f"`interface` in [{role}] of its settings to the address or interface that the others reach, such as "
            'interface = "eth0" (docs/operate.md, Several GPUs for one trainer)'
        )
