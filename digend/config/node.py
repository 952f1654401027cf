"""The node file: what runs on this box (`digend up NODE.toml`) and where the driver is. Torch-free."""

from typing import Annotated

from pydantic import Field

from digend.config.job import Section


class DriverNodeConfig(Section):
    """Present on the one box that runs the driver."""

    journal: str = Field("driver.sqlite", description="SQLite file, relative to `state`.")


class GeneratorNodeConfig(Section):
    slots: Annotated[int, Field(ge=0, description="Generator processes; slot i uses devices[i].")] = 1
    devices: list[str] = Field(default_factory=list, description="torch devices; cpu or cuda:i, automatic where empty.")
    threads: Annotated[int, Field(ge=1, description="torch threads a process.")] = 1


class TrainerNodeConfig(Section):
    device: str | None = None
    threads: Annotated[int, Field(ge=1)] = 1


class RewardNodeConfig(Section):
    slots: Annotated[int, Field(ge=0)] = 0
    devices: list[str] = Field(default_factory=list)
    threads: Annotated[int, Field(ge=1)] = 1


class TimingConfig(Section):
    """Liveness. A worker is torpid (no new leases) after `torpid_s` without a heartbeat, lost after `lost_s`."""

    heartbeat_s: Annotated[float, Field(gt=0)] = 1.0
    torpid_s: Annotated[float, Field(gt=0)] = 4.0
    lost_s: Annotated[float, Field(gt=0)] = 15.0
    rejoin_s: Annotated[float, Field(gt=0, description="After a driver restart, how long leases wait for their worker.")] = 20.0


class NodeConfig(Section):
    """One box."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "local"
    address: str = Field("ipc://.digend/driver.sock", description="The driver's address; ipc paths are relative to the node file.")
    data: str = Field("ipc", description="Where blobs are served: ipc (under `state`), or tcp://HOST (a free port is taken).")
    state: str = Field(".digend", description="Journal, uploads, caches, sockets, logs; relative to the node file.")
    runs: str = Field("runs", description="Run folders; relative to the node file.")
    reward_paths: list[str] = Field(default_factory=list, description="Folders from which file.py:function rewards may come.")
    driver: DriverNodeConfig | None = None
    generator: GeneratorNodeConfig | None = None
    trainer: TrainerNodeConfig | None = None
    reward: RewardNodeConfig | None = None
    recorder: bool = Field(False, description="Whether the recorder runs here.")
    timing: TimingConfig = Field(default_factory=lambda: TimingConfig.model_validate({}))
    log_format: str = Field("console", pattern=r"^(console|json)$")
    log_level: str = Field("info", pattern=r"^(debug|info|warning|error)$")
