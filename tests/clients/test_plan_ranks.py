"""The ranks of a plan: who could be one, what fits, the keys to set."""

import json
import tomllib
from pathlib import Path

import pytest

from broker.planning.devices import Device
from broker.planning.observed import Measured, Observed
from clients.output import Output
from clients.plan_inputs import slots_of
from clients.plan_memory import Worker, memory_of
from clients.plan_ranks import Question, RankPlan, laid_out, measured_bandwidth, rank_plan, together
from clients.plan_ranks_text import keys_of, tell_ranks, why_not
from clients.run_log import RunLog
from digend.config.node import NodeConfig
from digend.job_check import read_job
from digend.rl.layouts import Layout
from tests.clients.conftest import ROOT, Digenctl

SD3 = str(ROOT / "configs/jobs/sd3-flow-grpo.toml")
FULL = ("training.trainable=full", "training.gradient_checkpointing=true", "training.timestep_width=0")
BOX = '[generator]\nslots = 2\n[trainer]\nslots = {slots}\nmemory_gib = {gib}\ninterface = "{interface}"\n'


def box(name: str, slots: int, gib: float = 80, interface: str = "") -> NodeConfig:
    text = f'name = "{name}"\n' + BOX.format(slots=slots, gib=gib, interface=interface)
    return NodeConfig.model_validate(tomllib.loads(text))


def planned(
    *overrides: str, nodes: tuple[NodeConfig, ...] = (box("a", 4),), known: Measured | None = None, **asked: float
) -> RankPlan:
    found = rank_plan(question(*overrides, nodes=nodes, **asked), known)
    assert found is not None
    return found


def question(*overrides: str, nodes: tuple[NodeConfig, ...], **asked: float) -> Question:
    job = read_job(SD3, overrides).config
    gib, bandwidth = asked.get("gib"), asked.get("bandwidth")
    return Question(job=job, slots=slots_of(nodes), size="sd3.5-medium", gib=gib, bandwidth=bandwidth)


def test_lora_on_four_trainers() -> None:
    made = planned("training.timestep_width=1")
    assert made.chosen is not None
    assert made.chosen.layout == Layout(ranks=4, replicas=4)
    assert list(keys_of(made)) == [
        "plan: a/trainer/0, a/trainer/1, a/trainer/2, a/trainer/3: replicate",
        "  training.ranks = 4",
        "  training.replicas = 4",
        f"  training.timestep_width = {made.chosen.width}",
    ]


def test_wan22_is_cut_into_shards_and_a_pass_gathers_one_of_its_transformers() -> None:
    job = read_job(str(ROOT / "configs/jobs/wan2.2-a14b-flow-grpo.toml"), FULL).config
    made = rank_plan(Question(job=job, slots=slots_of((box("a", 8),)), size="wan2.2-a14b", gib=None, bandwidth=None))
    assert made is not None
    assert not any("no shards" in note for note in made.notes)
    shards = next(each for each in made.tried if each.layout == Layout(ranks=8, replicas=1))
    one, bf16, fp32 = 14_288_491_584, 2, 4
    assert shards.sent == pytest.approx(7 / 8 * shards.passes * one * (2 * bf16 + fp32), rel=0.001)


def test_what_it_says_a_rank_needs_is_what_the_job_would_be_planned_with() -> None:
    made = planned(*FULL)
    job = read_job(SD3, FULL).config
    for each in made.tried:
        laid = laid_out(job, each.layout, each.width)
        (worker,) = memory_of(laid, {"t": Worker(role="trainer")}, "sd3.5-medium").workers.values()
        assert worker.device_bytes == each.needed
    assert made.chosen is not None
    assert made.chosen.layout.name == "reshard off"
    assert "  training.reshard = false" in list(keys_of(made))


def test_what_does_not_fit_says_so() -> None:
    made = planned(*FULL)
    alone = max((each for each in made.tried if each.layout.ranks == 1), key=lambda each: each.width)
    assert why_not(made, alone) == "does not fit: 85.4 GiB of 80"
    small = planned(*FULL, nodes=(box("a", 4, gib=24),))
    assert small.chosen is None
    (note,) = small.notes
    assert note.startswith("nothing fits; least needs shard over 4 at width 1")
    assert "with model.memory.offload_encoders = true it would need" in note


def test_the_ranks_of_the_job_stay() -> None:
    made = planned("training.ranks=2")
    assert {each.layout.ranks for each in made.tried} == {2}
    more = planned("training.ranks=8")
    assert {each.layout.ranks for each in more.tried} == {8}
    assert more.notes == ("training.ranks = 8, and 4 trainers can meet",)
    without = planned("training.ranks=2", nodes=(), gib=80)
    assert without.notes == ()
    assert rank_plan(question(nodes=(box("a", 1),))) is None


def test_boxes_meet_by_their_interfaces() -> None:
    closed = planned(nodes=(box("a", 2), box("b", 4)))
    assert closed.names == tuple(f"b/trainer/{slot}" for slot in range(4))
    assert closed.notes == ("no [trainer] interface is set on a, b: no ranks with other boxes there",)
    met = planned(nodes=(box("a", 2, interface="eth0"), box("b", 4, interface="eth0")))
    assert met.names[:4] == tuple(f"b/trainer/{slot}" for slot in range(4))
    assert len(met.names) == 6
    assert met.notes == ()


def test_the_smallest_device_is_the_limit() -> None:
    nodes = (box("a", 2, gib=80, interface="eth0"), box("b", 2, gib=48, interface="eth0"))
    assert {each.limit for each in planned(nodes=nodes).tried} == {48 * 2**30}


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("training.optimizer=adafactor", 'training.optimizer = "adafactor"'),
        ("model.memory.layerwise_casting=float8_e4m3fn", "model.memory.layerwise_casting"),
    ],
)
def test_shards_are_not_offered_where_there_are_none(override: str, reason: str) -> None:
    made = planned(override)
    assert {each.layout.shards for each in made.tried} == {1}
    assert made.notes == (f"no shards: {reason} needs whole weights on every rank",)


TRAINERS = [Device(name=f"a/trainer/{slot}", role="trainer", update={8: 1.0} if slot == 0 else {}) for slot in range(4)]
TIMED = Measured(devices=(Device(name="a/generator/0", role="generator", generate=1.0, update={1: 3.0}), *TRAINERS))


def test_ranks_are_one_device_of_the_plan() -> None:
    made = planned(*FULL, known=TIMED, bandwidth=1e10)
    assert made.by_time
    assert made.chosen is not None
    assert made.chosen.compute == pytest.approx(24.0 / 4)
    known, notes = together(TIMED, made, read_job(SD3, FULL).config)
    assert notes == []
    generator, trainer = known.devices
    assert (generator.update, trainer.name) == ({}, "a/trainer/0")
    assert made.chosen.seconds is not None
    assert trainer.update[8] == pytest.approx(made.chosen.seconds / 24)
    unmeasured = planned(*FULL, known=TIMED)
    known, notes = together(TIMED, unmeasured, read_job(SD3, FULL).config)
    assert "--bandwidth" in notes[0]
    assert known.devices[-1].update[8] == pytest.approx(1.0 / 4)


def test_bandwidth_of_a_run_with_replicas() -> None:
    job = read_job(SD3, ["training.ranks=2"]).config
    tasks = tuple(Observed(worker="t", task="update", seconds=5.0, gather=gather) for gather in (9.0, 0.5, 0.5))
    log = RunLog(path="runs/x", job=job, tasks=tasks, steps=())
    rate = measured_bandwidth([log], "sd3.5-medium")
    assert rate == pytest.approx(2 * 4 * 18_776_064 * (1 / 2) / 0.5)
    alone = RunLog(path="runs/y", job=read_job(SD3).config, tasks=tasks, steps=())
    assert measured_bandwidth([alone], "sd3.5-medium") is None


def test_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    tell_ranks(Output(), planned(*FULL))
    text = capsys.readouterr().out
    assert "exchange between ranks: not measured (--bandwidth); chosen by memory alone" in text
    assert "does not fit: 80.3 GiB of 80" in text
    tell_ranks(Output(), planned(*FULL, nodes=(box("a", 2, gib=1),), gib=80, bandwidth=5e10))
    assert "exchange between ranks: 50 GB/s" in capsys.readouterr().out


@pytest.mark.matrix
def test_the_verb(digenctl: Digenctl, tmp_path: Path) -> None:
    node = tmp_path / "node.toml"
    node.write_text('name = "a"\n' + BOX.format(slots=4, gib=80, interface=""))
    args = ("plan", SD3, "--size", "sd3.5-medium", "--nodes", str(node))
    result = digenctl(*args)
    assert result.returncode == 0, result.stderr
    assert "training.ranks = 4" in result.stdout
    timed = (*args, "--generate", "30", "--update", "20", "--update-sequential", "30", "--bandwidth", "50", "--json")
    document = json.loads(digenctl(*timed).stdout)
    ranks = document["ranks"]
    assert (ranks["chosen_by"], ranks["bandwidth"], ranks["chosen"]["why_not"]) == ("time", 5e10, "")
    assert ranks["chosen"] in ranks["alternatives"]
    assert document["split"]["timestep_width"] == ranks["chosen"]["timestep_width"]
