"""`[tracking]` of the settings stands for what a job file leaves out of it; where it comes from is shown."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import Canned
from tests.config.support import JOB, write_job

ETC = '[tracking]\nuse = ["jsonl", "wandb"]\nproject = "lab"\n'


def site(folder: Path, text: str = ETC) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "digend.toml").write_text(text)


def submitted(digenctl: Digenctl, canned: Canned, *words: str, **environ: str) -> Any:
    result = digenctl("submit", "job.toml", *words, **environ)
    assert result.returncode == 0, result.stderr
    return tomllib.loads(canned.submits[-1].toml)["tracking"]


@pytest.mark.usefixtures("driver")
def test_a_job_file_wins_over_settings_and_they_over_defaults(
    digenctl: Digenctl, canned: Canned, tmp_path: Path
) -> None:
    write_job(tmp_path)
    assert submitted(digenctl, canned, "--id", "a") == {"use": ["jsonl", "tensorboard"], "project": "digend"}
    site(tmp_path)
    assert submitted(digenctl, canned, "--id", "b") == {"use": ["jsonl", "wandb"], "project": "lab"}
    assert submitted(digenctl, canned, "--id", "c", DIGEND_TRACKING__PROJECT="mine")["project"] == "mine"
    write_job(tmp_path, JOB + '\n[tracking]\nproject = "digend"\n')
    told = submitted(digenctl, canned, "--id", "d", "--set", 'tracking.mode="offline"')
    assert told == {"use": ["jsonl", "wandb"], "project": "digend", "mode": "offline"}, "even where it says the default"


def test_where_it_comes_from_is_shown_and_what_is_wrong_named(digenctl: Digenctl, tmp_path: Path) -> None:
    site(tmp_path)
    rows = json.loads(digenctl("config", "show", "tracking", "--json", "--origin").stdout)["settings"]
    origins = {row["key"]: row["origin"] for row in rows}
    assert origins["tracking.project"] == f"{tmp_path}/etc/digend.toml:3"
    assert origins["tracking.mode"] == "default"
    (tmp_path / "etc" / "digend.toml").write_text('[tracking]\nuse = ["wandbb"]\n')
    write_job(tmp_path)
    bad = digenctl("submit", "job.toml", "--check")
    assert bad.returncode == 78
    assert "etc/digend.toml:2" in bad.stderr
    assert "did you mean wandb?" in bad.stderr
