"""Curves of how far the trainer's log-probs were from the rollout's: by worker, by origin, by timestep.

Owns their choice, from the figures `drift/*` of global steps. Knows no markup. Invariant: what never was anything but 0
is left out, and a chart has three lines at most, those that went furthest.
"""

from collections.abc import Mapping

from daemons.recorder.charts import Chart, Line, Point, chart
from daemons.recorder.story import Curves, Story

_STYLES = {"main": "blue", "second": "green", "third": "orange"}


def drift_charts(story: Story) -> list[Chart]:
    """Largest |log ratio|, of each global step and over all of them."""
    curves = story.curves
    made = [
        _furthest(curves, "worker", "By worker"),
        _furthest(curves, "origin", "By origin"),
        _timesteps(curves),
    ]
    return [one for one in made if one is not None]


def _furthest(curves: Curves, by: str, title: str) -> Chart | None:
    """A line each for the three names that went furthest, by global step."""
    largest = _largest(curves, by)
    names = sorted(largest, key=lambda name: (-largest[name], name))[: len(_STYLES)]
    names = [name for name in names if largest[name]]
    lines = [
        Line(name=name, points=curves.step_series(f"drift/{by}/{name}"), style=style)
        for name, style in zip(names, _STYLES, strict=False)
    ]
    told = ", ".join(f"{_STYLES[line.style]}: {line.name}" for line in lines)
    return chart(title, lines, note=f"by global step; {told}", log=True)


def _timesteps(curves: Curves) -> Chart | None:
    """Over the timesteps: the largest of all global steps, and of the last."""
    largest = _largest(curves, "timestep")
    if not any(largest.values()):
        return None
    _, last = max(curves.steps.items())
    lines = [
        Line(name="all global steps", points=_along(largest)),
        Line(name="the last", points=_along(_of(last, "timestep")), style="third"),
    ]
    return chart("By timestep", lines, note="timestep across; orange: the last global step", log=True)


def _along(values: Mapping[str, float]) -> list[Point]:
    return sorted((float(name), value) for name, value in values.items())


def _largest(curves: Curves, by: str) -> dict[str, float]:
    """Of each name, over all global steps."""
    found: dict[str, float] = {}
    for values in curves.steps.values():
        for name, value in _of(values, by).items():
            found[name] = max(found.get(name, 0.0), value)
    return found


def _of(values: Mapping[str, float], by: str) -> dict[str, float]:
    prefix = f"drift/{by}/"
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
