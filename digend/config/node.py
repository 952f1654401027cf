"""The settings of a box: what runs on it, where the driver is, how digenctl shows things. Torch-free.

Read from one node file or from layers (`digend.config.layers`). Invariant: every table is strict, so that a quoted
number is an error whatever layer it is in.
"""

from typing import Annotated, Literal

from pydantic import Field

from digend.config.section import Section
from digend.config.tracking import TrackingConfig

NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
MOST_GIB = 1e6
"""Of memory or disk: more than any box has, and bytes of it are exact."""
MemoryGib = Annotated[
    float | None,
    Field(
        gt=0,
        le=MOST_GIB,
        description="Memory of a device that a process may use, in GiB; `digenctl plan` refuses what is more.",
    ),
]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]+)?)$")]


class DriverNodeConfig(Section, strict=True):
    """Present on the one box that runs the driver."""

    journal: str = Field("driver.sqlite", description="SQLite file, relative to `state`.")


INTERFACE = r"^[A-Za-z0-9._:@-]*$"


class GeneratorNodeConfig(Section, strict=True):
    """Generator processes of this box."""

    slots: Annotated[int, Field(ge=0, description="Generator processes; slot i uses devices[i].")] = 1
    devices: list[Device] = Field(
        default_factory=list, description="torch devices; cpu or cuda:i, automatic where empty."
    )
    interface: str = Field(
        "",
        pattern=INTERFACE,
        description="Where torch.distributed listens when policy versions are broadcast (`training.publish_by` of the "
        "job): an address, a name or an interface of this box (IPv4). Loopback where empty, which only a trainer of "
        "this box reaches. Its traffic is not encrypted (docs/operate.md, Weights by broadcast).",
    )
    threads: Annotated[int, Field(ge=1, description="torch threads a process.")] = 1
    peak_flops: Annotated[
        float | None,
        Field(
            gt=0,
            description="Floating-point operations a second of a device in the job's dtype, for utilisation; "
            "by the GPU's name where missing.",
        ),
    ] = None
    memory_gib: MemoryGib = None
    offload_encoders: Annotated[
        bool,
        Field(description="Here text encoders wait in host memory, whatever the job's `model.memory` says."),
    ] = False
    offload_blocks: Annotated[
        int,
        Field(
            ge=0,
            description="Here so many blocks of the transformer are on the device at a time, whatever the job's "
            "`model.memory` says; 0: as the job says.",
        ),
    ] = 0


class TrainerNodeConfig(Section, strict=True):
    """Trainer processes of this box. A job has one of its own, or several as one (`training.ranks` of the job)."""

    slots: Annotated[int, Field(ge=0, description="Trainer processes; slot i uses devices[i].")] = 1
    device: Device | None = Field(
        None, description="torch device; cpu or cuda:i, automatic where missing. Of all slots."
    )
    devices: list[Device] = Field(
        default_factory=list, description="torch devices, one for each slot; in the place of `device`."
    )
    interface: str = Field(
        "",
        pattern=INTERFACE,
        description="Where torch.distributed listens when several trainers are one, and when policy versions are "
        "broadcast: an address, a name or an interface of this box (IPv4). Loopback where empty, which only workers of "
        "this box reach. Its traffic is not encrypted (docs/operate.md, Several GPUs for one trainer).",
    )
    threads: Annotated[int, Field(ge=1, description="torch threads a process.")] = 1
    peak_flops: Annotated[
        float | None,
        Field(
            gt=0,
            description="Floating-point operations a second of a device in the job's dtype, for utilisation; "
            "by the GPU's name where missing.",
        ),
    ] = None
    memory_gib: MemoryGib = None

    def device_of(self, slot: int) -> str | None:
        """None: automatic."""
        return self.devices[slot] if slot < len(self.devices) else self.device


class RewardNodeConfig(Section, strict=True):
    """Dedicated reward processes of this box."""

    slots: Annotated[int, Field(ge=0, description="Reward processes; slot i uses devices[i].")] = 0
    devices: list[Device] = Field(
        default_factory=list, description="torch devices; cpu or cuda:i, automatic where empty."
    )
    threads: Annotated[int, Field(ge=1, description="torch threads a process.")] = 1
    python: str = Field(
        "",
        pattern=r"^(~?/.*)?$",
        description="Interpreter of these processes, a full path; the one of digend where empty. It needs digend "
        "without dependencies, and no torch (docs/rewards.md, An interpreter of its own).",
    )
    memory_gib: MemoryGib = None


class TimingConfig(Section, strict=True):
    """Liveness. A worker is torpid (no new leases), then lost, after so long without a heartbeat."""

    heartbeat_s: Annotated[float, Field(gt=0, description="Seconds between heartbeats.")] = 1.0
    torpid_s: Annotated[
        float, Field(gt=0, description="Torpid after this long without a heartbeat; more than heartbeat_s.")
    ] = 4.0
    lost_s: Annotated[
        float, Field(gt=0, description="Lost after this long without a heartbeat; more than torpid_s.")
    ] = 15.0
    rejoin_s: Annotated[
        float, Field(gt=0, description="After a driver restart, how long leases wait for their worker.")
    ] = 20.0


class ClientConfig(Section, strict=True):
    """How digenctl asks and shows."""

    reply_timeout_s: Annotated[float, Field(ge=0.05, description="Seconds to wait for one reply of the driver.")] = 5.0
    header: bool = Field(True, description="Whether tables have a first line with the names of their columns.")


class MetricsNodeConfig(Section, strict=True):
    """Prometheus endpoints of this box's daemons, one each; none where the table is missing (docs/metrics.md)."""

    port: Annotated[
        int,
        Field(
            ge=0,
            le=65000,
            description="The driver's; the recorder has the next, then trainers, generators, rewards. 0: free ports, "
            "told in the log and in `state`/metrics/*.json.",
        ),
    ] = 0
    host: str = Field(
        "127.0.0.1", description="Where they listen. Nobody is asked who they are: another address shows all to all."
    )


class KeysNodeConfig(Section, strict=True):
    """Keys for talking to other boxes (docs/operate.md, "Two boxes"); with them TCP of this box is encrypted."""

    private: str = Field(
        description="This box's own key, made by `digenctl keygen`, mode 0600. The credential `digend-key` of systemd "
        "comes first."
    )
    allowed: str = Field(description="The list of public keys that are let in, with their roles.")
    trusted_fabric: Annotated[
        str,
        Field(
            description="A network such as 10.91.0.0/24 on which tensors go in the clear, because nobody else is on it "
            '(docs/operate.md, "A trusted fabric"); `data` must be on it. Control stays encrypted; empty: tensors too.',
        ),
    ] = ""


class BlobsNodeConfig(Section, strict=True):
    """Tensors that a process keeps for others until they are not needed any more. Limits are of each process."""

    memory_gib: Annotated[
        float | None,
        Field(
            gt=0,
            le=MOST_GIB,
            description="So many GiB stay in memory, more goes to disk. Where that has no room either, a generator "
            "gets no more work while others can go on. No limit where missing.",
        ),
    ] = None
    spool_gib: Annotated[
        float, Field(ge=0, le=MOST_GIB, description="So many GiB may lie on disk, in `state`/spool; none where 0.")
    ] = 0.0


class NodeConfig(Section, strict=True):
    """One box."""

    name: Annotated[
        str,
        Field(
            pattern=NODE_NAME,
            description="Letters, digits, dot, underscore and dash, at most 63; unique in a cluster.",
        ),
    ] = "local"
    address: str = Field(
        "ipc://.digend/driver.sock",
        pattern=r"^(ipc|tcp)://.+$",
        description="The driver's address, ipc://PATH (relative to the node file) or tcp://HOST:PORT; off this machine "
        "it needs `keys`.",
    )
    data: str = Field(
        "ipc",
        pattern=r"^(ipc|tcp://([^:/\[\]]+|\[[0-9a-fA-F:.]+\]))$",
        description="Where blobs are served: ipc (under `state`), or tcp://HOST (a free port is taken). HOST is an "
        "address, a name or an interface of this box, under which other boxes reach it; it needs `keys` then.",
    )
    data_port: Annotated[
        int,
        Field(
            ge=0,
            le=65000,
            description="The port of the trainer's blobs; other trainers, generators and rewards of this box have the "
            "next ones. 0: free ports, which workers tell the driver.",
        ),
    ] = 0
    state: str = Field(".digend", description="Journal, uploads, caches, sockets, logs; relative to the node file.")
    runs: str = Field("runs", description="Run folders; relative to the node file.")
    reward_paths: list[str] = Field(
        default_factory=list,
        description="Folders from which file.py:function rewards may come; relative to the node file.",
    )
    driver: DriverNodeConfig | None = None
    generator: GeneratorNodeConfig | None = None
    trainer: TrainerNodeConfig | None = None
    reward: RewardNodeConfig | None = None
    recorder: bool = Field(False, description="Whether the recorder runs here.")
    metrics: MetricsNodeConfig | None = None
    keys: KeysNodeConfig | None = None
    blobs: BlobsNodeConfig = Field(default_factory=lambda: BlobsNodeConfig.model_validate({}))
    timing: TimingConfig = Field(default_factory=lambda: TimingConfig.model_validate({}))
    client: ClientConfig = Field(default_factory=lambda: ClientConfig.model_validate({}))
    tracking: TrackingConfig = Field(
        default_factory=lambda: TrackingConfig.model_validate({}),
        description="Of jobs that are submitted from this box, where their files leave it out.",
    )
    log_format: Literal["console", "json"] = Field("console", description="How logs are written.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="From which level on.")
