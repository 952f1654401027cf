"""Every file in configs/ loads, and the pages in docs/ are those of the models."""

from pathlib import Path

import pytest

from digend.config.docs import job_page, made_files, main, node_page
from digend.config.job import JobConfig
from digend.config.keys import keys_of
from digend.config.loader import load_node
from digend.config.node import NodeConfig
from digend.job_check import read_job
from tests.config.support import ROOT

JOBS = sorted((ROOT / "configs" / "jobs").glob("*.toml"))
NODES = sorted((ROOT / "configs" / "nodes").glob("*.toml"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_job_examples(path: Path) -> None:
    assert read_job(path).prompts


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.name)
def test_node_examples(path: Path) -> None:
    config = load_node(path)
    assert config.address == f"ipc://{ROOT}/.digend/driver.sock"
    assert config.runs == str(ROOT / "runs")
    assert config.driver is not None


def test_there_are_examples_of_both_kinds() -> None:
    assert JOBS
    assert NODES


def test_the_demo_names_what_it_trains_on() -> None:
    config = read_job(ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml").config
    assert Path(config.model.path) == ROOT / "configs" / "models" / "shapes-flux"
    assert (config.data.prompts_per_rollout, config.data.samples_per_prompt) == (6, 24)


@pytest.mark.parametrize("name", made_files())
def test_what_is_made_of_the_models_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == made_files()[name], "run: python -m digend.config.docs"


def test_pages_are_written_to_the_root_of_a_checkout_only(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not the root of a checkout"):
        main(str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("model", "page"), [(JobConfig, job_page()), (NodeConfig, node_page())], ids=["job", "node"])
def test_every_key_is_on_its_page_with_a_meaning(model: type[JobConfig] | type[NodeConfig], page: str) -> None:
    for key in keys_of(model).values():
        assert key.meaning, key.path
        if not key.table:
            assert f"| `{key.path.rpartition('.')[2]}` |" in page
