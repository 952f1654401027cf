"""Every verb against a driver of canned answers: what people see, what programs see, how it ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digend.config.emit import resolved_toml
from digend.config.loader import load_job
from digend.config.prompts import PromptRow, content_digest, packed_prompts
from digend.wire.protocol import PROTOCOL
from digend.wire.records import Record
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, FakeDriver, job_view, node_view

JOB = str(ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml")

pytestmark = pytest.mark.usefixtures("driver")


def document(text: str) -> Any:
    parsed = json.loads(text)
    assert parsed["schema_version"] == 1
    return parsed


def test_jobs(digenctl: Digenctl) -> None:
    result = digenctl("jobs")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "ID          STATE    STEP  VERSION  REWARD  TOOK   REASON",
        "other-001   failed   7/22  7        0.712   2 min  -",
        "shapes-002  running  7/22  7        0.712   -      -",
    ]
    assert digenctl("jobs", "--no-header").stdout.startswith("other-001")
    assert [job["id"] for job in document(digenctl("jobs", "--json").stdout)["jobs"]] == ["other-001", "shapes-002"]


def test_status(digenctl: Digenctl) -> None:
    result = digenctl("status")
    assert result.returncode == 0
    assert result.stdout.splitlines()[:7] == [
        "driver   epoch 3, up 12 min",
        "job      shapes-002 running: global step 7 of 22, policy version 7, reward 0.712",
        "queued   1 job",
        "SQ       empty",
        "UQ       2 waiting, the oldest for 1.2 s",
        "tensors  none wait",
        "bubbles  4.2 % of worker time",
    ]
    assert "box/generator/0" in result.stdout
    parsed = document(digenctl("status", "--json").stdout)
    assert (parsed["epoch"], parsed["bubble_share"], parsed["uq_depth"]) == (3, 0.042, 2)


def test_status_says_how_many_bytes_wait_where(digenctl: Digenctl, canned: Canned) -> None:
    mib = 2**20
    limits: dict[str, Any] = {"memory_limit_bytes": 64 * mib, "spool_limit_bytes": 2048 * mib}
    first = replace(node_view("box/generator/0"), held_bytes=102 * mib, spooled_bytes=40 * mib, **limits)
    second = replace(node_view("box/trainer/0"), held_bytes=20 * mib)
    canned.nodes, canned.uq_bytes = (first, second, node_view("box/reward/0")), 80 * mib
    result = digenctl("status")
    assert result.stdout.splitlines()[4:8] == [
        "UQ       2 waiting, the oldest for 1.2 s, 80 MiB",
        "tensors  82 MiB in memory, 40 MiB on disk, at 2 workers",
        "         box/generator/0: 62 MiB in memory (limit 64 MiB), 40 MiB on disk (limit 2.0 GiB)",
        "         box/trainer/0: 20 MiB in memory",
    ]
    parsed = document(digenctl("status", "--json").stdout)
    assert (parsed["held_bytes"], parsed["spooled_bytes"], parsed["uq_bytes"]) == (122 * mib, 40 * mib, 80 * mib)
    assert parsed["nodes"][0]["spool_limit_bytes"] == 2048 * mib
    assert "40 MiB of 2.0 GiB" in digenctl("nodes", "-o", "worker,spooled").stdout


@pytest.mark.parametrize("state", ["torpid", "lost"])
def test_status_is_degraded_without_a_worker(digenctl: Digenctl, canned: Canned, state: str) -> None:
    canned.nodes = (node_view("box/generator/0", state),)
    assert digenctl("status").returncode == 3


def test_status_is_degraded_after_a_failed_job(digenctl: Digenctl, canned: Canned) -> None:
    canned.jobs = {"a": job_view("a", "failed", reason="no model folder")}
    result = digenctl("status")
    assert result.returncode == 3
    assert "a failed (no model folder)" in result.stdout


def test_status_is_degraded_by_a_named_problem(digenctl: Digenctl, canned: Canned) -> None:
    canned.problems = ("disk full",)
    result = digenctl("status", "--json")
    assert result.returncode == 3
    assert document(result.stdout)["problems"] == ["disk full"]


def test_empty_answers_say_what_to_do_next(digenctl: Digenctl, canned: Canned) -> None:
    canned.jobs, canned.nodes, canned.items = {}, (), ()
    assert "digenctl submit JOB.toml" in digenctl("jobs").stderr
    assert "digend up NODE.toml" in digenctl("nodes").stderr
    assert "nothing waits in SQ or UQ" in digenctl("queue").stderr
    status = digenctl("status")
    assert status.returncode == 0
    assert "bubbles  -\n" in status.stdout
    assert "digenctl submit JOB.toml" in status.stderr
    assert digenctl("watch").returncode == 5


def test_queue(digenctl: Digenctl) -> None:
    assert "waits for the trainer" in digenctl("queue").stdout
    assert document(digenctl("queue", "uq", "--json").stdout)["queue"]["items"][0]["micro_batch"] == 3
    assert document(digenctl("queue", "sq", "--json").stdout)["queue"]["items"] == []
    assert digenctl("queue", "xq").returncode == 2


def test_nodes_and_show_node(digenctl: Digenctl) -> None:
    assert "generates micro-batch 3" in digenctl("nodes").stdout
    assert len(document(digenctl("nodes", "--json").stdout)["nodes"]) == 2
    shown = document(digenctl("show", "node", "box/t", "--json").stdout)
    assert (shown["name"], shown["versions"]) == ("box/trainer/0", {"torch": "2.9"})
    assert digenctl("show", "node", "box/").returncode == 2
    missing = digenctl("show", "node", "box/trainer/1")
    assert missing.returncode == 5
    assert "did you mean box/trainer/0?" in missing.stderr


def test_a_worker_does_something_or_has_a_reason(digenctl: Digenctl, canned: Canned) -> None:
    idle = replace(node_view("box/trainer/0", "idle"), doing="reward")
    canned.nodes = (node_view("box/generator/0"), idle)
    assert digenctl("nodes", "-o", "state,doing,reason").stdout.splitlines() == [
        "STATE  DOING                    REASON",
        "busy   generates micro-batch 3  -",
        "idle   -                        waits for rewards",
    ]
    assert "idle: waits for rewards" in digenctl("show", "node", "box/trainer/0").stdout
    assert "busy: generates micro-batch 3" in digenctl("show", "node", "box/generator/0").stdout


def test_show_job(digenctl: Digenctl, canned: Canned) -> None:
    job = load_job(ROOT / "configs/jobs/shapes-flow-grpo.toml")
    canned.job_files["shapes-002"] = resolved_toml(job)
    result = digenctl("show", "job", "sha")
    assert result.returncode == 0
    assert f"model       flux, full, float32: {job.model.path}\n" in result.stdout
    assert "trains      flow_grpo on 6 prompts x 24 samples for shapes_both\n" in result.stdout
    assert f"schedule    {job.schedule.strategy}, staleness 0, scoring colocated\n" in result.stdout
    assert "last step   reward/mean 0.7\n            --metrics shows all 2 figures\n" in result.stdout
    assert "last step   kl nan\n            reward/mean 0.7\n" in digenctl("show", "job", "sha", "--metrics").stdout
    assert "global step 7 of 22" in result.stdout
    assert "counters    samples 3168\ncheckpoint  /runs/a/checkpoints/5\nrun         /runs/a\n" in result.stdout
    assert "warnings" not in result.stdout
    assert result.stdout.splitlines()[-4:] == [
        "SECONDS   box/generator/0  box/trainer/0",
        "generate  60.0             -",
        "update    -                50.0",
        "decode    3.5              -",
    ]
    parsed = document(digenctl("show", "job", "--json").stdout)
    assert parsed["job"]["id"] == "shapes-002"
    assert parsed["last_step"] == {"reward/mean": 0.7, "kl": None}


def test_an_unknown_job(digenctl: Digenctl) -> None:
    result = digenctl("show", "job", "shapes-003", "--json")
    assert result.returncode == 5
    assert document(result.stdout)["error"] == {
        "code": 5,
        "message": "no job 'shapes-003'; did you mean shapes-002?",
    }


def test_the_beginning_of_several_ids(digenctl: Digenctl, canned: Canned) -> None:
    canned.jobs = {name: job_view(name, "running") for name in ("a-1", "a-2", "a")}
    result = digenctl("cancel", "a-")
    assert result.returncode == 2
    assert "a-1, a-2" in result.stderr
    empty = digenctl("cancel", "")
    assert (empty.returncode, empty.stderr) == (
        2,
        "digenctl: an empty name is the beginning of every job's: name one\n",
    )
    done = document(digenctl("cancel", "a", "--json").stdout)
    assert (done["schema_version"], done["id"], done["state"]) == (1, "a", "cancelled")


def test_cancel_needs_an_id(digenctl: Digenctl) -> None:
    result = digenctl("cancel", "--json")
    assert result.returncode == 2
    assert document(result.stdout)["error"]["code"] == 2


def test_version(digenctl: Digenctl) -> None:
    assert f"driver    0.0.0, protocol {PROTOCOL}" in digenctl("version").stdout
    assert document(digenctl("version", "--json").stdout)["driver"]["python"] == "3.11"


def test_submit_uploads_the_prompts_and_is_idempotent(digenctl: Digenctl, canned: Canned) -> None:
    result = digenctl("submit", JOB, "--id", "mine", "--set", "seed=7", "--json")
    assert result.returncode == 0
    done = document(result.stdout)
    assert (done["schema_version"], done["id"], done["created"], done["position"]) == (1, "mine", True, 0)
    submit = canned.submits[0]
    content = canned.uploads[submit.prompts]
    assert content_digest(content) == submit.prompts
    assert json.loads(content)[0] == ["a red circle", {}]
    assert (json.loads(submit.config)["seed"], submit.eval_prompts) == (7, None)
    assert "seed = 7" in submit.toml
    again = digenctl("submit", JOB, "--id", "mine", "--set", "seed=7")
    assert (again.returncode, "submitted before" in again.stdout) == (0, True)
    other = digenctl("submit", JOB, "--id", "mine", "--set", "seed=8")
    assert (other.returncode, "other content" in other.stderr) == (2, True)


def test_submit_sends_large_prompts_in_pieces(digenctl: Digenctl, canned: Canned, tmp_path: Path) -> None:
    prompts = [f"a red circle beside the number {number}" for number in range(10_000)]
    (tmp_path / "many.txt").write_text("\n".join(prompts))
    assert digenctl("submit", JOB, "--set", f"data.prompts={tmp_path}/many.txt").returncode == 0
    content = canned.uploads[canned.submits[0].prompts]
    assert len(content) > 2 * 128 * 1024
    assert content == packed_prompts([PromptRow(text) for text in prompts])


@pytest.mark.parametrize(
    ("state", "code"), [("completed", 0), ("failed", 1), ("cancelled", 1)], ids=lambda value: str(value)
)
def test_wait_and_watch_end_as_the_job_does(digenctl: Digenctl, canned: Canned, state: str, code: int) -> None:
    canned.jobs["shapes-002"] = job_view("shapes-002", state, reason="because", submitted_ns=20)
    waited = digenctl("wait", "shapes")
    assert (waited.returncode, waited.stdout) == (code, f"job shapes-002 {state} at global step 7: because\n")
    assert digenctl("watch").returncode == code
    assert document(digenctl("wait", "--json").stdout)["job"]["state"] == state


def test_wait_outlasts_a_running_job(digenctl: Digenctl, canned: Canned) -> None:
    canned.lasting_polls = 2
    assert digenctl("wait").returncode == 0
    assert canned.num_polls == 3  # a running job, one that is over, and once more for where to look


def test_wait_gives_up(digenctl: Digenctl) -> None:
    result = digenctl("wait", "--timeout", "0")
    assert result.returncode == 75
    assert "not over after 0 s: it is running" in result.stderr


def test_submit_wait(digenctl: Digenctl, canned: Canned) -> None:
    canned.lasting_polls = 1
    parsed = document(digenctl("submit", JOB, "--wait", "--json").stdout)
    assert (parsed["created"], parsed["job"]["state"]) == (True, "completed")


def test_watch_prints_one_line_a_change(digenctl: Digenctl, canned: Canned, story: list[Record]) -> None:
    canned.jobs["done-001"] = replace(job_view("done-001", "completed", submitted_ns=30), global_step=2)
    canned.records["done-001"] = story
    result = digenctl("watch")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "running",
        "evaluation before (global step 0): accuracy 0.736, 12 s",
        "global step 1, reward 0.612, 5.9 s, policy version 1, 1 of 144 samples masked",
        "generator box/generator/0 lost: no heartbeat for 15 s",
        "incarnation 1 goes on from global step 0: trainer lost",
        "checkpoint at global step 2: /runs/x/2",
        "warning: group dropped, prompt p3",
        "job done-001 completed at global step 2",
    ]
    assert "look at /runs/a/report.html" in result.stderr
    lines = [document(line) for line in digenctl("watch", "done", "--json").stdout.splitlines()]
    assert [line["record"]["seq"] for line in lines[:-1]] == list(range(len(story)))
    assert lines[-1]["job"]["state"] == "completed"


def test_a_driver_that_does_not_reply(digenctl: Digenctl, canned: Canned) -> None:
    canned.silent = True
    result = digenctl("status", "--reply-timeout", "0.3")
    assert result.returncode == 75
    assert "safe to repeat" in result.stderr


def test_the_driver_is_found_by_option_node_file_and_environment(
    digenctl: Digenctl, driver: FakeDriver, tmp_path: Path
) -> None:
    node = tmp_path / "node.toml"
    node.write_text('address = "ipc://.digend/driver.sock"\n')
    assert digenctl("jobs").returncode == 0
    assert digenctl("jobs", "--address", "ipc://elsewhere.sock").returncode == 69
    assert digenctl("--address", "ipc://elsewhere.sock", "jobs").returncode == 69
    assert digenctl("jobs", DIGEND_ADDRESS="ipc://elsewhere.sock").returncode == 69
    assert digenctl("jobs", "--node", str(node), DIGEND_ADDRESS="ipc://elsewhere.sock").returncode == 69
    assert digenctl("--node", str(node), "jobs").returncode == 0
    assert digenctl("jobs", DIGEND_ADDRESS=driver.address).returncode == 0
    assert digenctl("jobs", DIGEND_NODE=str(node)).returncode == 0
    assert digenctl("jobs", "--node", str(tmp_path / "none.toml")).returncode == 78
    assert digenctl("jobs", "--address", "http://x").returncode == 2
    too_long = digenctl("jobs", "--address", f"ipc:///{'x' * 120}")
    assert (too_long.returncode, "107" in too_long.stderr) == (2, True)
