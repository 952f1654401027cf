"""What a worker is, and the waits of its shell. Pure data."""

from dataclasses import dataclass
from ipaddress import ip_address

from digend.wire.workers import Role, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same in every HELLO of this process. `data` is the blob server's address."""

    role: Role
    name: str
    node: str
    instance: str
    data: str
    versions: Versions
    meet_at: str = "127.0.0.1"
    """Address at which torch.distributed of others reaches this process; loopback, unless `interface` in the settings
    of its role says otherwise."""

    @property
    def interface(self) -> str:
        """`meet_at` where other boxes reach it, else ""."""
        return "" if ip_address(self.meet_at).is_loopback else self.meet_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTiming:
    """Seconds. The driver is silent after `lost_s` without an answer to a heartbeat.

    Asked to stop, a worker gives its task `drain_s` to finish, then `stop_s` to give up, and its results
    `acknowledge_s`. Results are told again every `resend_s`. An evicted worker's task may ignore for `stuck_s` that it
    was revoked.
    """

    lost_s: float = 15.0
    drain_s: float = 30.0
    stop_s: float = 2.0
    acknowledge_s: float = 3.0
    resend_s: float = 5.0
    stuck_s: float = 30.0
