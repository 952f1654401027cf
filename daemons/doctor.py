"""`digend doctor NODE.toml`: what would go wrong on this box, said before it does.

Owns the checks. Changes nothing but for a file that it makes and removes to see whether it may. torch is asked in a
process of its own, because importing it here would be the daemons' business. Every finding is ok, a warning (exit code
3) or an error (exit code 78).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

import click

from daemons import keyring
from daemons.children import programs
from daemons.ready import present
from digend.config.errors import ConfigError
from digend.config.node import NodeConfig
from digend.extras import WORKER, installed_version
from digend.findings import Finding, exit_code, room
from digend.net.addresses import BadAddress, resolve, socket_path
from digend.net.claims import AddressInUse, Claim
from digend.net.interfaces import find
from digend.net.security import Security

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("pyzmq", "msgpack", "blake3", "pydantic", "structlog", "safetensors")
PROBE = """
import sys
from digend.engines.devices import choose_device
try:
    print(choose_device(sys.argv[1], "reward", 0))
except ValueError as error:
    sys.exit(str(error))
"""


def run(node: NodeConfig) -> int:
    """Prints every finding; 0 all is well, 3 something is odd, 78 something will not work."""
    found = []
    for check in CHECKS:
        for finding in check(node):
            found.append(finding)
            click.echo(f"{finding.level:<8}{finding.what}: {finding.message}")
    return exit_code(found)


def check_python(node: NodeConfig) -> Iterator[Finding]:
    """Python is new enough, and what is needed is installed."""
    number = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok" if sys.version_info >= (3, 11) else "error", "python", f"{number} at {sys.executable}")
    works = node.generator is not None or node.trainer is not None
    for name in (*NEEDED, *WORKER):
        extra = "[worker]" if name in WORKER else ""
        if found := installed_version(name):
            yield Finding("ok", name, found)
        elif works or not extra:
            yield Finding("error", name, f"not installed: pip install 'digend{extra}' into this environment")
        else:
            yield Finding("ok", name, "not installed; only generators and trainers need it")


def check_names(node: NodeConfig) -> Iterator[Finding]:
    """`broker`, `daemons` and `clients` are common words: another package of that name would be imported instead."""
    for name in ("digend", "broker", "daemons", "clients"):
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin == ROOT / name / "__init__.py":
            yield Finding("ok", f"package {name}", str(origin.parent))
        else:
            message = f"`import {name}` gives {origin}, not {ROOT / name}: install digend in an environment of its own"
            yield Finding("error", f"package {name}", message)


def check_devices(node: NodeConfig) -> Iterator[Finding]:
    """Every configured device is one that torch sees, where it is installed; no more compute threads than cores."""
    for device in dict.fromkeys(_devices(node)) if find_spec("torch") else ():
        probe = subprocess.run(
            [sys.executable, "-c", PROBE, device], capture_output=True, text=True, check=False, cwd=ROOT
        )
        lines = (probe.stdout if probe.returncode == 0 else probe.stderr).strip().splitlines()
        message = lines[-1] if lines else f"the probe ended with {probe.returncode}"
        message = message.removeprefix(f"device {device!r}: ")
        yield Finding("ok" if probe.returncode == 0 else "error", f"device {device}", message)
    threads, cores = _threads(node), len(os.sched_getaffinity(0))
    if threads > cores:
        yield Finding("warning", "cores", f"{threads} compute threads are configured for {cores} cores")
    else:
        yield Finding("ok", "cores", f"{threads} compute threads for {cores} cores")


def check_folders(node: NodeConfig) -> Iterator[Finding]:
    """State and runs can be written and have room."""
    for key, folder in (("state", Path(node.state)), ("runs", Path(node.runs))):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        try:  # made by root, it would not be the daemons' own
            with NamedTemporaryFile(dir=there):
                free = shutil.disk_usage(there).free
        except OSError as error:
            yield Finding("error", key, f"{folder} cannot be written: {error.strerror}")
            continue
        yield room(key, str(folder), free)
    for path in node.reward_paths:
        found = Path(path).is_dir()
        yield Finding("ok" if found else "error", "reward_paths", path if found else f"{path} is no folder")


def check_address(node: NodeConfig) -> Iterator[Finding]:
    """The driver's address is free where the driver runs here, else somebody answers there."""
    try:
        address = resolve(node.address, keyed=node.keys is not None)
    except BadAddress as error:
        yield Finding("error", "address", str(error))
        return
    if present(address, _usable(node)) is not None:
        yield Finding("ok", "address", f"a driver answers at {address}")
    elif node.driver is None:
        yield Finding("warning", "address", f"no driver answers at {address}")
    else:
        yield _free(address)


def check_keys(node: NodeConfig) -> Iterator[Finding]:
    """The private key is nobody else's and belongs together; it is listed for what runs here."""
    if node.keys is None:
        yield Finding("ok", "keys", "none: nothing of this box goes to another")
        return
    try:
        security = keyring.load(node)
    except ConfigError as error:
        yield Finding("error", "keys", str(error))
        return
    assert security is not None
    grant = security.grant(security.key.public)
    if grant is None:
        yield Finding(
            "error", "keys", f"{security.key.public} is not listed in {node.keys.allowed}: add its lines there"
        )
        return
    if grant.name != node.name:
        message = f"this box is {node.name}, and its key is listed for {grant.name}: the two must be the same"
        yield Finding("error", "keys", message)
    for role in sorted({program.role for program in programs(node)} - grant.roles):
        yield Finding("error", "keys", f"a {role} runs here, and the key is not listed for it in {node.keys.allowed}")
    yield Finding("ok", "keys", f"{security.key.public} is listed for {grant}")
    if security.fabric is not None:
        message = f"tensors go in the clear on {security.fabric}: whoever is on that network can read them"
        yield Finding("warning", "trusted_fabric", message)


def _usable(node: NodeConfig) -> Security | None:
    """None where the keys cannot be used, which another check says."""
    with suppress(ConfigError):
        return keyring.load(node)
    return None


def _free(address: str) -> Finding:
    path = socket_path(address)
    try:
        if path:
            Claim(path).release()
    except OSError as error:
        in_use = isinstance(error, AddressInUse)
        return Finding("error", "address", str(error) if in_use else f"{path}: {error.strerror}")
    return Finding("ok", "address", f"{address}, no driver runs yet")


def _devices(node: NodeConfig) -> list[str]:
    sections = [section.devices for section in (node.generator, node.trainer, node.reward) if section]
    named = [device for devices in sections for device in devices]
    return [*named, node.trainer.device] if node.trainer and node.trainer.device else named


def _threads(node: NodeConfig) -> int:
    return sum(section.slots * section.threads for section in (node.generator, node.trainer, node.reward) if section)


def check_ranks(node: NodeConfig) -> Iterator[Finding]:
    """Where torch.distributed listens: as ranks of a trainer, and for broadcasts of policy versions."""
    if node.trainer is not None and (node.trainer.slots > 1 or node.trainer.interface):
        yield _interface("trainer.interface", node.trainer.interface)
    if node.generator is not None and node.generator.interface:
        yield _interface("generator.interface", node.generator.interface)


def _interface(key: str, wanted: str) -> Finding:
    try:
        found = find(wanted)
    except BadAddress as error:
        return Finding("error", key, str(error))
    reach = "workers of this box only" if found.is_loopback else "not encrypted: for a network of the workers alone"
    return Finding("ok", key, f"{found.name} ({found.address}), {reach}")


CHECKS: tuple[Callable[[NodeConfig], Iterator[Finding]], ...] = (
    check_python,
    check_names,
    check_folders,
    check_keys,
    check_address,
    check_devices,
    check_ranks,
)
