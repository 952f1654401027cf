"""A package of someone else brings a family, an algorithm and a reward, and a job runs on all three."""

import sys
from pathlib import Path

import pytest

from digend import plugins
from digend.config.job import JobConfig
from digend.wire.tasks import Prompt, ScoreItem, ScoreResult, ScoreTask
from tests.engines.world import JOB, NUM_PAIRS, T, bench
from tests.plugins.package import install


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path / "site-packages")))
    for name in [name for name in sys.modules if name.startswith("toy_digend")]:
        monkeypatch.delitem(sys.modules, name)


def job(path: Path | str = "unused") -> JobConfig:
    return JobConfig.model_validate(
        {
            "name": "toy",
            "model": {"family": "toy", "path": str(path), "options": {"scale": 0.2}},
            "sampling": {"height": 2, "width": 2, "num_timesteps": T},
            "algorithm": {"name": "reinforce"},
            "data": {"prompts": "p.txt", "prompts_per_rollout": 1, "samples_per_prompt": 4},
            "training": {"global_steps": 1, "update_batch": 2, "learning_rate": 1e-2},
            "rewards": [{"name": "redness"}],
        }
    )


@pytest.mark.usefixtures("installed")
def test_its_names_are_known_beside_our_own() -> None:
    assert plugins.model_spec("toy").name == "toy"
    assert plugins.reward_spec("redness").name == "redness"
    assert set(plugins.available(plugins.ALGORITHMS)) - set(plugins.OWN[plugins.ALGORITHMS]) == {"reinforce"}
    spec = plugins.algorithm_spec("reinforce")
    options = plugins.validate_options(spec, {}, "algorithm.options")
    assert spec.rules(options, job()).window_hi == T - 1
    with pytest.raises(plugins.PluginError, match=r"is a ModelSpec, but digend\.rewards"):
        plugins.reward_spec("not_a_reward")


@pytest.mark.usefixtures("installed")
def test_two_packages_with_one_name_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "rival-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[digend.models]\ntoy = rival:spec\n")
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    with pytest.raises(plugins.PluginError, match=r"two installed packages offer .*'toy'"):
        plugins.model_spec("toy")


def test_without_it_the_names_are_gone() -> None:
    with pytest.raises(plugins.PluginError, match="unknown model family 'toy'"):
        plugins.model_spec("toy")


@pytest.mark.usefixtures("installed")
def test_a_job_runs_on_it(tmp_path: Path) -> None:
    on = bench("trainer", job(tmp_path), tmp_path / "node")
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
