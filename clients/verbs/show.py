"""`digenctl show job` and `digenctl show node`: everything about one of them."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from clients import completing
from clients.api import Digend
from clients.jobs import name_of
from clients.output import Output
from clients.story import metrics, run_folder
from clients.verb import verb
from clients.verbs.nodes import doing
from clients.words import age, number
from digend.wire.devices import DeviceState
from digend.wire.views import JobDetail, NodeView

CHOSEN = (
    "reward/mean",
    "reward/std",
    "groups/zero_std",
    "train/loss",
    "train/gradient_norm",
    "train/kl",
    "samples/masked",
    "bubble/share",
    "time/global_step_s",
)
"""Of the figures of a global step, those that tell most."""


@click.group("show", epilog="\b\nExamples:\n  digenctl show job\n  digenctl show node laptop/trainer/0 --json")
def command() -> None:
    """All about one job or one worker."""


@verb("  digenctl show job\n  digenctl show job sweep-3 --metrics\n  digenctl show job sweep-3 --json", name="job")
@click.argument("job", metavar="[ID]", required=False, shell_complete=completing.jobs)
@click.option(
    "--metrics", "whole", is_flag=True, help="Every figure of the last global step; docs/metrics.md explains."
)
def _job(driver: Digend, output: Output, job: str | None, whole: bool) -> None:
    """All about a job; the newest where no ID (or beginning of one) is given."""
    detail = driver.job(job)
    if output.as_json:
        output.view(detail)
        return
    for line in job_lines(detail, driver.job_file(detail.job.id), whole=whole):
        output.line(line)
    if detail.stage_seconds:
        output.line()
        workers = sorted(detail.stage_seconds)
        output.table(("SECONDS", *workers), list(stage_rows(detail.stage_seconds, workers)))
        if detail.staging_seconds:
            told = ", ".join(f"{worker} {seconds:.2f} s" for worker, seconds in detail.staging_seconds.items())
            output.line(f"of it, while policy versions were staged in the background: {told}")


@verb("  digenctl show node laptop/trainer/0\n  digenctl show node laptop/t --json", name="node")
@click.argument("worker", metavar="NAME", shell_complete=completing.workers)
def _node(driver: Digend, output: Output, worker: str) -> None:
    """All about a worker, by its name or the beginning of one."""
    nodes = {each.name: each for each in driver.nodes()}
    found = nodes[name_of("node", list(nodes), worker)]
    if output.as_json:
        output.view(found)
    for line in node_lines(found):
        output.line(line)


command.add_command(_job)
command.add_command(_node)


def job_lines(detail: JobDetail, toml: str, *, whole: bool) -> Iterator[str]:
    """`toml`: its resolved file. `whole`: with every figure of its last global step."""
    job = detail.job
    yield f"job         {job.id} ({job.name})"
    if job.parent:
        yield f"parent      {job.parent}, from its checkpoint of global step {job.parent_step}"
    yield f"state       {job.state}" + (f": {job.reason}" if job.reason else "")
    yield from what_it_trains(tomllib.loads(toml))
    yield f"progress    global step {job.global_step} of {job.num_global_steps}, policy version {job.policy_version}"
    yield f"reward      {number(job.reward)}"
    yield f"took        {age(detail.seconds)}, incarnation {job.incarnation}"
    for evaluation in detail.evaluations:
        yield f"evaluation  {evaluation.label}, global step {evaluation.global_step}: {metrics(evaluation.metrics)}"
    happened = {name: count for name, count in detail.counters.items() if count}
    last = detail.last_step if whole else {name: detail.last_step[name] for name in CHOSEN if name in detail.last_step}
    yield from _listed("last step", last)
    if len(last) < len(detail.last_step):
        yield f"{'':<12}--metrics shows all {len(detail.last_step)} figures"
    yield from _listed("counters", happened)
    for title, path in (("checkpoint", detail.checkpoint), ("pipeline", detail.pipeline), ("run", run_folder(detail))):
        if path is not None:
            yield f"{title:<12}{path}"


def _listed(title: str, values: Mapping[str, float]) -> Iterator[str]:
    for number_of_line, (name, value) in enumerate(values.items()):
        yield f"{'' if number_of_line else title:<12}{name} {value:.6g}"


def what_it_trains(file: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a job file that people tell jobs apart by; of a file without them nothing."""
    try:
        model, data, training, schedule = (file[name] for name in ("model", "data", "training", "schedule"))
        rewards = ", ".join(reward["name"] for reward in file["rewards"])
        yield f"model       {model['family']}, {training['trainable']}, {model['dtype']}: {model['path']}"
        yield (
            f"trains      {file['algorithm']['name']} on {data['prompts_per_rollout']} prompts x "
            f"{data['samples_per_prompt']} samples for {rewards}"
        )
        yield f"schedule    {schedule['strategy']}, staleness {schedule['staleness']:g}, scoring {schedule['scoring']}"
    except KeyError:
        return


def stage_rows(seconds: Mapping[str, Mapping[str, float]], workers: Sequence[str]) -> Iterator[list[str]]:
    """A row a stage, the longest over all workers first."""
    totals: Counter[str] = Counter()
    for by_stage in seconds.values():
        totals.update(by_stage)
    for stage, _ in totals.most_common():
        yield [stage, *(number(seconds[worker].get(stage), 1) for worker in workers)]


def node_lines(node: NodeView) -> Iterator[str]:
    yield f"worker     {node.name}, a {node.role} on {node.node}"
    yield f"state      {node.state}: {node.reason or doing(node)}"
    yield f"heartbeat  {age(node.heartbeat_age_s)} ago, session {node.session}"
    yield f"process    {node.pid} on {node.device}, {node.tasks_done} tasks done"
    if node.health:
        yield f"GPU        {node.health}{_load(node.device_state)}"
    for name, version in sorted(node.versions.items()):
        yield f"version    {name} {version}"


def _load(device: DeviceState | None) -> str:
    """What else the GPU tells: `, 97 % busy, 612 W, 83 °C`."""
    if device is None or device.status == "lost":
        return ""
    told = (
        f", {100 * device.utilization:.0f} % busy" if device.utilization is not None else "",
        f", {device.power_w:.0f} W" if device.power_w is not None else "",
        f", {device.temperature_c} °C" if device.temperature_c is not None else "",
    )
    return "".join(told)
