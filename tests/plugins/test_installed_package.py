"""A package of someone else brings a family, an algorithm and a reward, and a job runs on all three."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from digend import plugins
from digend.config.errors import ConfigError
from digend.config.job import JobConfig
from digend.config.loader import load_job
from digend.engines.protocols import TaskFault
from digend.job_check import read_job
from digend.wire.tasks import Prompt, ScoreItem, ScoreResult, ScoreTask
from tests.engines.world import JOB, bench
from tests.plugins.package import BLOCKS, COMMANDS, FILES, ROOT, follow

NUM_PAIRS = 18
"""Of the bench's global step: 2 prompts, 3 samples, 3 timesteps."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page was followed."""
    here = tmp_path_factory.mktemp("pocket")
    follow(here)
    return here


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder / "site-packages"))
    for name in [name for name in sys.modules if name.startswith("pocket_digend")]:
        monkeypatch.delitem(sys.modules, name)


def offering(folder: Path, points: str) -> Path:
    """Another package's entry points, in a folder like site-packages."""
    info = folder / "rival-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    return folder


def test_every_file_of_the_page_has_a_name() -> None:
    assert len(FILES) == sum(kind != "sh" for kind, _ in BLOCKS)
    assert len(COMMANDS) == 2


@pytest.mark.usefixtures("installed")
def test_its_names_are_known_beside_our_own(folder: Path) -> None:
    assert plugins.model_spec("pocket").name == "pocket"
    assert plugins.reward_spec("redness").name == "redness"
    assert set(plugins.available(plugins.ALGORITHMS)) - set(plugins.OWN[plugins.ALGORITHMS]) == {"reinforce"}
    spec = plugins.algorithm_spec("reinforce")
    options = plugins.validate_options(spec, {}, "algorithm.options")
    config = load_job(folder / "pocket.toml")
    assert spec.rules(options, config).window_hi == config.sampling.num_timesteps - 1
    with pytest.raises(plugins.PluginOptionError, match=r"model.options.scales: .*did you mean scale"):
        plugins.validate_options(plugins.model_spec("pocket"), {"scales": 1}, "model.options")


@pytest.mark.usefixtures("installed")
def test_a_spec_of_another_kind_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[digend.rewards]\nnot_a_reward = pocket_digend.family:spec\n"
    monkeypatch.syspath_prepend(str(offering(tmp_path / "other", points)))
    with pytest.raises(plugins.PluginError, match=r"is a ModelSpec, but digend\.rewards"):
        plugins.reward_spec("not_a_reward")


@pytest.mark.usefixtures("installed")
def test_two_packages_with_one_name_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(offering(tmp_path / "other", "[digend.models]\npocket = rival:spec\n")))
    with pytest.raises(plugins.PluginError, match=r"two installed packages offer .*'pocket'"):
        plugins.model_spec("pocket")


def test_without_it_the_names_are_gone() -> None:
    with pytest.raises(plugins.PluginError, match="unknown model family 'pocket'"):
        plugins.model_spec("pocket")


def test_its_specs_need_no_torch(folder: Path) -> None:
    """As the driver and digenctl read them."""
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom digend import plugins\n"
        "plugins.model_spec('pocket'), plugins.algorithm_spec('reinforce'), plugins.reward_spec('redness')\n"
    )
    path = os.pathsep.join([str(ROOT), str(folder / "site-packages")])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)


@pytest.mark.usefixtures("installed")
def test_a_global_step_is_made_on_it(folder: Path, tmp_path: Path) -> None:
    config = JobConfig.model_validate({**load_job(folder / "pocket.toml").model_dump(), "name": "tiny"})
    on = bench("trainer", config, tmp_path / "node")
    groups = on.groups()
    generated = on.generate(on.generate_task())
    items = tuple(ScoreItem(prompt=Prompt(uid="p0", text="red"), index=at, blob=generated.samples) for at in range(3))
    scored = on.engine.run(
        ScoreTask(
            job=JOB,
            incarnation=0,
            purpose="train",
            global_step=0,
            rollout=0,
            micro_batch=0,
            fragment=0,
            items=items,
        ),
        on.context,
    )
    assert isinstance(scored, ScoreResult)
    assert [sorted(score.components) for score in scored.scores] == [["redness", "redness.darkness"]] * 3
    update = on.update(on.items(groups, generated))
    assert update.num_pairs == NUM_PAIRS
    assert update.max_abs_log_ratio <= 1e-6
    before = on.values()
    weights = on.commit().weights
    assert weights is not None
    assert weights.num_tensors == 2
    assert not any((before[name] == value).all() for name, value in on.values().items())


@pytest.mark.usefixtures("installed")
def test_an_adapter_on_a_family_without_targets_is_refused(folder: Path, tmp_path: Path) -> None:
    """At submit; and by the worker, where a job names targets of its own."""
    wanted = ["training.trainable=lora"]
    with pytest.raises(ConfigError, match=r"family pocket names no LoRA targets: expected training\.lora_targets"):
        read_job(folder / "pocket.toml", wanted)
    config = read_job(folder / "pocket.toml", [*wanted, "training.lora_targets=['head']"]).config
    with pytest.raises(TaskFault, match="head of this family is no module of diffusers") as raised:
        bench("trainer", config, tmp_path / "node")
    assert raised.value.error.reason == "config"
