"""Node files: paths, and what must fit together."""

from pathlib import Path

import pytest

from digend.config.errors import ConfigError
from digend.config.loader import load_node


def write(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_node_file(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    config = load_node(
        write(folder, 'address = "ipc://../run/d.sock"\nstate = "../run"\nreward_paths = ["rewards"]\n[driver]\n')
    )
    assert config.address == f"ipc://{tmp_path}/run/d.sock"
    assert config.state == str(tmp_path / "run")
    assert config.runs == str(folder / "runs")
    assert config.reward_paths == [str(folder / "rewards")]
    assert config.driver is not None
    assert config.trainer is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[generater]\n", ":1: generater: unknown key; did you mean generator?"),
        ("[generator]\nslot = 2\n", ":2: generator.slot = 2: unknown key; did you mean generator.slots?"),
        ('[generator]\nslots = 2\ndevices = ["cpu"]\n', ":3: generator.devices: expected one for each of the 2 slots"),
        ("[timing]\ntorpid_s = 1.0\n", ":2: timing.torpid_s: must be more than timing.heartbeat_s (1)"),
        ("[timing]\nlost_s = 2\n", ":2: timing.lost_s: must be more than timing.torpid_s (4)"),
        ('log_level = "warn"\n', "did you mean warning?"),
        ('address = "udp://x"\n', ':1: address = "udp://x": expected a string of the right form (The driver'),
        ('address = "tcp://127.0.0.1"\n', ":1: address: 'tcp://127.0.0.1' needs a port from 1 to 65535"),
        ('address = "tcp://127.0.0.1:x"\n', "needs a port"),
        (
            '[trainer]\ndevice = "gpu"\n',
            ':2: trainer.device = "gpu": expected a string of the right form (torch device; cpu',
        ),
        ('[generator]\ndevices = ["gpu0"]\n', ':2: generator.devices[0] = "gpu0": expected a string of the right form'),
        (
            'address = "tcp://10.0.0.3:5555"\n',
            ":1: address: expected 127.0.0.1 or localhost, because there are no keys: make one with `digenctl keygen`",
        ),
        (f'address = "ipc:///{"x" * 120}"\n', "an ipc path has at most 107 bytes, this one has 121"),
        ('data = "tcp://10.0.0.3"\n', ":1: data: expected 127.0.0.1 or localhost, because there are no keys"),
        (
            'address = "tcp://10.0.0.3:5"\n[keys]\nprivate="k"\nallowed="l"\n[generator]\n',
            "data: other boxes cannot reach ipc: expected tcp:// and the address or interface",
        ),
        (
            'data = "tcp://*"\n[keys]\nprivate="k"\nallowed="l"\n',
            ":1: data: expected the address or interface that other boxes reach this one by",
        ),
        (
            'data = "tcp://10.0.0.3"\n[keys]\nprivate="k"\nallowed="l"\ntrusted_fabric="10.0.0.1/24"\n',
            ":5: keys.trusted_fabric: expected a network such as 10.91.0.0/24; did you mean 10.0.0.0/24?",
        ),
        (
            'data = "tcp://10.0.0.3"\n[keys]\nprivate="k"\nallowed="l"\ntrusted_fabric="10.0.1.0/24"\n',
            ":1: data: 10.0.0.3 is not in keys.trusted_fabric (10.0.1.0/24)",
        ),
        ("data_port = 5760\n", ":1: data_port: blobs are served over ipc: expected data = tcp://"),
        ("data_port = 65001\n", ":1: data_port = 65001: expected"),
        ("[keys]\npublic = 1\n", ":2: keys.public = 1: unknown key"),
        ('[keys]\nallowed = "l"\n', "keys.private: required, and missing: expected string (This box's own key"),
    ],
)
def test_one_mistake(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_node(write(tmp_path, text))
    assert expected in str(caught.value)


def test_with_keys_other_machines_are_allowed(tmp_path: Path) -> None:
    keys = '[keys]\nprivate = "key.toml"\nallowed = "all/keys.toml"\n'
    text = f'address = "tcp://box-a:5757"\ndata = "tcp://[fd00::2]"\n{keys}[generator]\n'
    config = load_node(write(tmp_path, text))
    assert config.keys is not None
    assert (config.keys.private, config.keys.allowed) == (f"{tmp_path}/key.toml", f"{tmp_path}/all/keys.toml")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:5555", "tcp://localhost:5555"])
def test_addresses_of_this_machine(tmp_path: Path, address: str) -> None:
    assert load_node(write(tmp_path, f'address = "{address}"\n')).address == address
