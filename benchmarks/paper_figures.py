"""The paper's Figures 17 and 18 and its colocated and heterogeneous ranges beside what the schedule model says.

    .venv/bin/python -m benchmarks.paper_figures [--write]

Prints the tables of docs/results.md; --write puts them there and draws docs/images/figure-17.png and figure-18.png.
`benchmarks/paper_cases.py` says what is fitted. Seconds of computation, no GPU.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.marked import replace_marked
from benchmarks.paper_cases import (
    FITTED,
    FRACTIONS,
    HETEROGENEOUS,
    PAPERS,
    SCHEDULES,
    Case,
    Paper,
    Range,
    fitted,
    heterogeneous,
)

DOCS = Path(__file__).parents[1] / "docs"
SENSITIVITY = (8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/results.md and docs/images")
    write = parser.parse_args().write
    cases = {paper.name: [fitted(paper, end) for end in range(2)] for paper in PAPERS}
    text = "\n".join([*tables(cases), "", *sensitivity()])
    print(text)
    if write:
        replace_marked(DOCS / "results.md", "paper_figures", text)
        for paper in PAPERS:
            draw(paper, cases[paper.name], DOCS / f"images/figure-{paper.figure}.png")


def tables(cases: dict[str, list[Case]]) -> Iterator[str]:
    for paper in PAPERS:
        yield from _over_naive(paper, cases[paper.name])
        yield ""
    yield from _over_colocated(cases)


def _over_naive(paper: Paper, cases: Sequence[Case]) -> Iterator[str]:
    low, high = cases
    yield (
        f"**{paper.name}** (Figure {paper.figure}); in units of g, t = {low.sequential:.2f} without TSP and "
        f"{low.wide:.2f} with it at fraction {FRACTIONS[0]}, {high.sequential:.2f} and {high.wide:.2f} at "
        f"{FRACTIONS[1]}."
    )
    yield ""
    yield "| over naive | paper | here | off | |"
    yield "|---|---|---|---|---|"
    found = [case.over("naive") for case in cases]
    for schedule in SCHEDULES:
        yield _row(schedule, paper.over_naive[schedule], [each[schedule] for each in found], schedule in FITTED)
    for schedule in ("colocated", "colocated with TSP"):
        yield f"| {schedule} | | {_range([each[schedule] for each in found])} | | predicted |"


def _over_colocated(cases: dict[str, list[Case]]) -> Iterator[str]:
    yield "| over colocated | paper | here | off | |"
    yield "|---|---|---|---|---|"
    for paper in PAPERS:
        found = [case.over("colocated") for case in cases[paper.name]]
        for schedule, reported in (("+TAG", paper.over_colocated), ("+TCSS", paper.over_colocated_tcss)):
            yield _row(f"{paper.name}, {schedule}", reported, [each[schedule] for each in found])
    found = [heterogeneous(case).over("colocated") for case in cases[PAPERS[0].name]]
    for schedule in ("+TAG", "+TCSS"):
        yield _row(f"unlike GPUs, {schedule}", HETEROGENEOUS, [each[schedule] for each in found])
    yield ""
    yield "| over colocated with TSP | here |"
    yield "|---|---|"
    for paper in PAPERS:
        found = [case.over("colocated with TSP") for case in cases[paper.name]]
        for schedule in ("+TAG", "+TCSS"):
            yield f"| {paper.name}, {schedule} | {_range([each[schedule] for each in found])} |"
    found = [heterogeneous(case).over("colocated with TSP") for case in cases[PAPERS[0].name]]
    for schedule in ("+TAG", "+TCSS"):
        yield f"| unlike GPUs, {schedule} | {_range([each[schedule] for each in found])} |"


def _row(label: str, reported: Range, found: Sequence[float], fit: bool = False) -> str:
    off = ", ".join(f"{100 * (here / there - 1):+.0f} %" for here, there in zip(found, reported, strict=True))
    return f"| {label} | {_range(reported)} | {_range(found)} | {off} | {'fitted' if fit else 'predicted'} |"


def _range(values: Sequence[float]) -> str:
    return " - ".join(f"{value:.2f}" for value in values)


def sensitivity() -> Iterator[str]:
    """The micro-batches of a global step are not in the paper."""
    yield "| fitted with B = | " + " | ".join(f"{paper.name}: {each}" for paper in PAPERS for each in PREDICTED) + " |"
    yield "|---|" + "---|" * len(PAPERS) * len(PREDICTED)
    for num in SENSITIVITY:
        cells = []
        for paper in PAPERS:
            found = [fitted(paper, end, num).over("naive") for end in range(2)]
            cells += [_range([each[schedule] for each in found]) for schedule in PREDICTED]
        yield f"| {num} | {' | '.join(cells)} |"
    reported = [_range(paper.over_naive[schedule]) for paper in PAPERS for schedule in PREDICTED]
    yield f"| paper | {' | '.join(reported)} |"


PREDICTED = tuple(schedule for schedule in SCHEDULES if schedule not in FITTED)


def draw(paper: Paper, cases: Sequence[Case], path: Path) -> None:
    """Bars over naive: the ends of the paper's ranges beside the two cases."""
    from matplotlib.figure import Figure

    shown = (*SCHEDULES, "colocated", "colocated with TSP")
    found = [case.over("naive") for case in cases]
    figure = Figure(figsize=(8.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for at, colour in enumerate(("#9db8d9", "#3b6aa0")):
        heights = [paper.over_naive[schedule][at] for schedule in SCHEDULES]
        places = [x - 0.3 + 0.2 * at for x in range(len(SCHEDULES))]
        label = f"paper, {'lower' if at == 0 else 'upper'} end"
        bars = axes.bar(places, heights, 0.19, color=colour, label=label, hatch="//", edgecolor="white")
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    for at, colour in enumerate(("#f2b880", "#c8641b")):
        heights = [found[at][schedule] for schedule in shown]
        places = [x + 0.1 + 0.2 * at for x in range(len(shown))]
        bars = axes.bar(places, heights, 0.19, color=colour, label=f"model, fraction {FRACTIONS[at]}")
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    marks = [f"{name}\n({'fitted' if name in FITTED else 'predicted'})" for name in shown]
    axes.set_xticks(range(len(shown)), marks, fontsize=8)
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    axes.set_ylabel("speed-up over naive")
    axes.set_title(f"{paper.name}: the paper's Figure {paper.figure} and the schedule model", fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
