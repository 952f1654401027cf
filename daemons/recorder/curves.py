"""Which curves the report shows, from the figures of global steps and evaluations.

Owns their choice, titles and notes. Knows no markup. Invariant: a curve of what a job does not do is left out.
"""

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase

from daemons.recorder.charts import Chart, Line, Point, chart
from daemons.recorder.story import Curves, Story

MAX_COMPONENTS = 12


def outcome_charts(story: Story) -> list[Chart]:
    """Reward by global step, then every evaluated figure that is not the reward once more."""
    curves = story.curves
    means = curves.step_series("reward/mean")
    spread = dict(curves.step_series("reward/std"))
    band = [(at, mean - spread[at], mean + spread[at]) for at, mean in means if at in spread]
    every = dict.fromkeys(name for values in curves.steps.values() for name in values)
    parts = [name for name in every if name.startswith("component/") and curves.step_series(name) != means]
    components = [
        chart(
            name.removeprefix("component/"),
            [Line(name="mean", points=curves.step_series(name))],
            note="training, ± 1 std",
            band=_band(curves, name),
        )
        for name in parts[:MAX_COMPONENTS]
    ]
    reward = chart("Training reward", [Line(name="mean", points=means)], note="mean, band ± 1 std", band=band)
    names = dict.fromkeys(name for values in curves.evaluations.values() for name in values if name.startswith("eval/"))
    series = {name.removeprefix("eval/"): curves.evaluation_series(name) for name in names}
    evaluated = [
        chart(name, [Line(name=name, points=points, style="second")], note="evaluation")
        for name, points in series.items()
        if name == "reward" or points != series.get("reward")
    ]
    return [one for one in (reward, *components, *evaluated) if one is not None]


def _band(curves: Curves, component: str) -> list[tuple[float, float, float]]:
    spread = dict(curves.step_series(component.replace("component/", "component_std/")))
    return [(at, mean - spread[at], mean + spread[at]) for at, mean in curves.step_series(component) if at in spread]


def cost_charts(story: Story) -> list[Chart]:
    """What the global steps cost, and what for."""
    series, total = story.curves.step_series, Counter[str]()
    for values in story.curves.steps.values():
        total.update({name: value for name, value in values.items() if fnmatchcase(name, "bubble/*_s")})
    causes = [name for name, seconds in total.most_common(3) if seconds > 0]
    styles = ("main", "second", "third")
    bubbles = [
        Line(name=_cause(name), points=_with_zeros(story.curves, name), style=style)
        for name, style in zip(causes, styles, strict=False)
    ]
    colours = dict(zip(styles, ("blue", "green", "orange"), strict=True))
    words = ", ".join(f"{colours[line.style]}: {line.name}" for line in bubbles)
    stale, assisted = _some(series, "schedule/stale_share"), _some(series, "schedule/assisted_micro_batches")
    made = [
        chart("Bubble share", _line(series, "bubble/share"), note="of worker time", from_zero=True),
        chart("Bubbles by cause", bubbles, note=f"seconds; {words}", from_zero=True),
        chart("Samples by worker second", _line(series, "throughput/samples_per_worker_second"), from_zero=True),
        chart("Samples by GPU second", _line(series, "throughput/samples_per_gpu_second"), from_zero=True),
        chart("FLOP/s", _line(series, "compute/flops_per_second"), note="all workers, as counted", from_zero=True),
        chart("FLOP utilisation", _line(series, "compute/utilisation"), note="share of peak", from_zero=True),
        chart("Stale micro-batches", stale, note="share", from_zero=True),
        chart(
            "By the trainer (TAG)",
            assisted,
            note="micro-batches",
            from_zero=True,
        ),
    ]
    return [one for one in made if one is not None]


def _beyond_one(points: list[Point]) -> list[Point]:
    """A ratio leaves 1 by parts of a thousand, which no axis could tell."""
    return [(at, value - 1) for at, value in points]


def _with_zeros(curves: Curves, name: str) -> list[Point]:
    """A cause that a global step did not have is 0 there, where bubbles were measured at all."""
    return [
        (float(at), values.get(name, 0.0)) for at, values in sorted(curves.steps.items()) if "bubble/share" in values
    ]


Series = Callable[[str], list[Point]]


def _line(series: Series, name: str) -> list[Line]:
    return [Line(name=name, points=series(name))]


def _some(series: Series, name: str) -> list[Line]:
    """Nothing where all of it is 0: a curve of what a job does not do says nothing."""
    points = series(name)
    return [Line(name=name, points=points)] if any(value for _, value in points) else []


def _cause(name: str) -> str:
    return name.removeprefix("bubble/").removesuffix("_s").replace("_", " ")


def training_charts(story: Story) -> list[Chart]:
    """Whether the optimizer was healthy."""
    series = story.curves.step_series
    ratios = [
        Line(name="any micro-batch", points=series("train/max_abs_log_ratio")),
        Line(name="first micro-batch", points=series("train/first_max_abs_log_ratio"), style="third"),
    ]
    ratio = [
        Line(name="mean", points=_beyond_one(series("train/ratio_mean"))),
        Line(name="largest", points=_beyond_one(series("train/ratio_max")), style="third"),
    ]
    advantages = [
        Line(name="std", points=series("advantage/std"), style="second"),
        Line(name="largest", points=series("advantage/max"), style="third"),
        Line(name="smallest", points=series("advantage/min"), style="third"),
    ]
    kl = [Line(name="KL", points=series("train/kl"))]
    losses = [
        Line(name="dropped groups", points=series("groups/dropped"), style="third"),
        Line(name="groups without spread", points=series("groups/zero_std")),
    ]
    made = [
        chart("Clip fraction", [Line(name="clipped", points=series("train/clip_fraction"))], from_zero=True),
        chart("Importance ratio − 1", ratio, note="mean, orange: largest"),
        chart("max |log ratio|", ratios, note="orange: first micro-batch", log=True),
        chart("Advantage", advantages, note="green: std, orange: largest"),
        chart("Gradient norm", [Line(name="norm", points=series("train/gradient_norm"))], from_zero=True),
        chart("Loss", [Line(name="loss", points=series("train/loss"))]),
        chart("KL to the base", kl, from_zero=True) if any(value for _, value in kl[0].points) else None,
        chart(
            "Groups without gradient",
            losses if any(y for line in losses for _, y in line.points) else [],
            note="orange: dropped",
            from_zero=True,
        ),
        chart("Seconds a global step", [Line(name="seconds", points=series("time/global_step_s"))], from_zero=True),
    ]
    return [one for one in made if one is not None]
