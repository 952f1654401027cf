"""What several keys of a job, or of a node, must agree on. Pure; needs no plug-in and no torch.

Each check is one line of a table: the key to blame and, where it is violated, what was expected.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from digend.config.errors import nearest
from digend.config.fabric import is_in, network_of
from digend.config.job import JobConfig
from digend.config.node import NodeConfig
from digend.rl.sigmas import SCHEDULES

Complaint = tuple[str, str]
"""Dotted key, what was expected of it."""

MAX_IPC_BYTES = 107
"""Longest path of a Unix socket on Linux: sun_path has 108 bytes, the last is 0."""

MANY_EVALUATED = 10_000
"""Samples that no evaluation of a small job reaches."""

ANY_HOST = ("*", "0.0.0.0", "[::]")
"""Every interface: nothing that others could connect to."""


def num_micro_batches(config: JobConfig) -> int:
    """B, the micro-batches of a rollout (docs/architecture.md)."""
    if config.schedule.partition == "naive":
        return config.training.updates_per_rollout
    return -(-config.data.prompts_per_rollout // config.schedule.micro_batch_groups)


def job_complaints(config: JobConfig) -> Iterator[Complaint]:
    """What does not fit together within the job file itself."""
    updates, micro_batches = config.training.updates_per_rollout, num_micro_batches(config)
    if micro_batches % updates:
        yield (
            "training.updates_per_rollout",
            f"must divide the {micro_batches} micro-batches of a rollout "
            "(data.prompts_per_rollout / schedule.micro_batch_groups)",
        )
    if config.schedule.staleness and updates > 1:
        yield "schedule.staleness", "must be 0 where training.updates_per_rollout is more than 1"
    if config.schedule.decode == "reward" and config.schedule.scoring != "dedicated":
        yield "schedule.decode", 'reward needs schedule.scoring = "dedicated": a generator has decoded before it scores'
    if config.training.init_adapter is not None and config.training.trainable != "lora":
        yield "training.init_adapter", 'needs training.trainable = "lora"'
    if config.training.deterministic and config.training.timestep_width == "auto":
        yield (
            "training.timestep_width",
            "auto is measured, which training.deterministic = true has no room for: a number",
        )
    yield from _ranks(config)
    if not any(reward.weight for reward in config.rewards):
        yield "rewards", "every weight is 0: there would be nothing to learn from"
    yield from _twice("rewards", [reward.name for reward in config.rewards])
    yield from _twice("eval.metrics", [metric.name for metric in config.eval.metrics])
    yield from _sigma_schedule(config.sampling.sigma_schedule)


def _ranks(config: JobConfig) -> Iterator[Complaint]:
    training = config.training
    if training.ranks % training.num_replicas:
        fitting = ", ".join(str(each) for each in range(1, training.ranks + 1) if training.ranks % each == 0)
        yield "training.replicas", f"must divide training.ranks = {training.ranks}: {fitting}"
    elif training.num_replicas != training.ranks:
        whole = "needs whole weights on every rank: training.replicas = training.ranks"
        if training.optimizer == "adafactor":
            yield "training.optimizer", f"adafactor {whole}"
        if config.model.memory.layerwise_casting != "none":
            yield "model.memory.layerwise_casting", whole


def _twice(key: str, names: Sequence[str]) -> Iterator[Complaint]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"{key}[{index}].name", "listed twice; curves are named after it"


def _sigma_schedule(text: str) -> Iterator[Complaint]:
    name, colon, shift = text.partition(":")
    known = ("family", *(each for each in SCHEDULES if each not in ("flux", "explicit")))
    if name not in known:
        near = nearest(name, known)
        hint = f"; did you mean {near}?" if near else ""
        yield "sampling.sigma_schedule", f"unknown schedule {text!r}: expected {', '.join(known)}{hint}"
    elif colon and not _positive(shift):
        yield "sampling.sigma_schedule", f"expected a shift > 0 after the colon, such as {name}:3.0"


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def prompt_complaints(config: JobConfig, num_prompts: int) -> Iterator[Complaint]:
    """What the number of prompts must be."""
    wanted = config.data.prompts_per_rollout
    if num_prompts < wanted:
        yield (
            "data.prompts_per_rollout",
            f"a rollout has {wanted} distinct prompts, and the prompts file has only {num_prompts}",
        )


def evaluation_warning(config: JobConfig, num_prompts: int) -> Iterator[str]:
    """Where evaluation would draw many more samples than training; `num_prompts`: of evaluation."""
    if not config.eval.enabled:
        return
    between = (config.training.global_steps - 1) // config.eval.every if config.eval.every else 0
    evaluated = num_prompts * (2 * config.eval.samples + between * config.eval.during_samples)
    rollouts = -(-config.training.global_steps // config.training.updates_per_rollout)
    trained = rollouts * config.data.prompts_per_rollout * config.data.samples_per_prompt
    if evaluated > max(trained, MANY_EVALUATED):
        yield (
            f"eval: {num_prompts} prompts make {evaluated} samples over the job, training draws {trained}: name fewer "
            "in eval.prompts, or lower eval.samples and eval.during_samples"
        )


def node_complaints(config: NodeConfig) -> Iterator[Complaint]:
    """What does not fit together within the node file itself; `address` is already resolved."""
    timing = config.timing
    if not timing.heartbeat_s < timing.torpid_s:
        yield "timing.torpid_s", f"must be more than timing.heartbeat_s ({timing.heartbeat_s:g})"
    if not timing.torpid_s < timing.lost_s:
        yield "timing.lost_s", f"must be more than timing.torpid_s ({timing.torpid_s:g})"
    for role, section in (("generator", config.generator), ("trainer", config.trainer), ("reward", config.reward)):
        if section is not None and 0 < len(section.devices) < section.slots:
            yield f"{role}.devices", f"expected one for each of the {section.slots} slots, or none at all"
    yield from address_complaints("address", config.address, keyed=config.keys is not None)
    if config.data != "ipc":
        yield from address_complaints("data", config.data, keyed=config.keys is not None)
    elif _has_worker(config) and config.address.startswith("tcp://") and not _loopback(config.address):
        yield (
            "data",
            "other boxes cannot reach ipc: expected tcp:// and the address or interface to reach this one by",
        )
    if config.data_port and config.data == "ipc":
        yield "data_port", "blobs are served over ipc: expected data = tcp:// and the address or interface of this box"
    if config.keys is not None and config.keys.trusted_fabric:
        yield from _fabric_complaints(config.keys.trusted_fabric, config.data)


def _fabric_complaints(fabric: str, data: str) -> Iterator[Complaint]:
    """A network on which tensors go in the clear is spelled out, and `data` is on it as far as can be seen here."""
    try:
        network = network_of(fabric)
    except ValueError as error:
        yield "keys.trusted_fabric", str(error)
        return
    host = data.removeprefix("tcp://")
    if data != "ipc" and _is_number(host) and not is_in(host, network):
        yield "data", f"{host} is not in keys.trusted_fabric ({fabric}): expected this box's address on that network"


def _has_worker(config: NodeConfig) -> bool:
    return any(role is not None for role in (config.generator, config.trainer, config.reward))


def address_complaints(key: str, address: str, *, keyed: bool) -> Iterator[Complaint]:
    """What an address must be: a short ipc path, TCP on this machine, or any TCP where there are keys."""
    scheme, _, rest = address.partition("://")
    if scheme == "ipc" and len(rest.encode()) > MAX_IPC_BYTES:
        yield key, f"an ipc path has at most {MAX_IPC_BYTES} bytes, this one has {len(rest.encode())}"
    elif scheme == "tcp" and key == "address" and not _has_port(address):
        yield key, f"{address!r} needs a port from 1 to 65535, such as tcp://127.0.0.1:5757"
    elif scheme == "tcp" and key == "data" and rest in ANY_HOST:
        yield key, f"expected the address or interface that other boxes reach this one by, not {rest}"
    elif scheme == "tcp" and not keyed and not _loopback(address):
        yield (
            key,
            "expected 127.0.0.1 or localhost, because there are no keys: make one with `digenctl keygen` and "
            "name it in [keys] (docs/operate.md, Two boxes)",
        )


def _is_number(host: str) -> bool:
    try:
        return bool(ip_address(host.strip("[]")))
    except ValueError:
        return False


def _has_port(address: str) -> bool:
    try:
        return bool(urlsplit(address).port)
    except ValueError:
        return False


def _loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
