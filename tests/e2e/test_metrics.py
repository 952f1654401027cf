"""What a real daemon shows Prometheus is what the job's files say."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.e2e.cluster import Cluster


def _scrape(cluster: Cluster, daemon: str) -> list[Sample]:
    (found,) = json.loads((cluster.folder / "state" / "metrics" / f"{daemon}.json").read_text())
    with urllib.request.urlopen(f"http://{found['targets'][0]}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def _value(samples: list[Sample], name: str, **labels: str) -> float:
    return next(each.value for each in samples if each.name == name and each.labels == labels)


def _newest(path: Path, kind: str) -> dict[str, float]:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    newest = [line for line in lines if line["kind"] == kind][-1]
    return {name: value for name, value in newest.items() if "/" in name}


def test_a_job_has_the_same_figures_in_prometheus_and_in_metrics_jsonl(cluster: Cluster) -> None:
    before = _value(_scrape(cluster, "generator-0"), "digend_tasks_total", task="generate")
    run = cluster.run("scraped", "training.global_steps=2")
    samples = _scrape(cluster, "driver-0")
    shown = {each.labels["figure"]: each.value for each in samples if each.name == "digend_job_figure"}
    metrics = run.folder / "metrics.jsonl"
    assert shown == pytest.approx(_newest(metrics, "step") | _newest(metrics, "evaluation"), rel=1e-12, abs=0)
    assert shown["compute/flops"] > 0
    assert "compute/utilisation" not in shown, "the peak of a CPU is not known"
    assert 0 < shown["bubble/share"] < 1
    assert _value(samples, "digend_journal_commit_seconds_count") > 0
    assert _value(samples, "digend_event_loop_lag_seconds_count") > 0
    assert {each.labels["role"] for each in samples if each.name == "digend_worker_up"} >= {"trainer", "generator"}
    assert _value(_scrape(cluster, "generator-0"), "digend_tasks_total", task="generate") > before
