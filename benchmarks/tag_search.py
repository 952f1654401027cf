"""How long one search takes at the first bubble of a global step, where it is longest; draws the paper's Figure 10.

    .venv/bin/python benchmarks/tag_search.py [--figure FILE.png]

Round durations: h = g, s = c = 0, every cell the median of 100 searches. Generic ones: 100 random instances with all
times, seeded; switch and score take up to 0.6 g and 0.4 g. One thread, in its own CPU time, so that other load does not
count.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time

from PIL import Image, ImageDraw, ImageFont

from broker.schedule.bts import search
from broker.schedule.planned import best
from broker.schedule.snapshot import Model, Running, Snapshot
from broker.schedule.times import Times

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SIZES = (8, 16, 32, 64, 128)
LARGE = (256, 512, 1024)
REPEATS = 100


def first_bubble(model: Model, micro_batches: int) -> Snapshot:
    """The generator has just begun its first micro-batch and the trainer has nothing to do."""
    return Snapshot(pending=micro_batches - 1, generator=Running(model.times.generate))


def milliseconds(call: Callable[[], object]) -> float:
    start = thread_time()
    call()
    return (thread_time() - start) * 1e3


def round_durations(micro_batches: int, ratio: float) -> tuple[float, float, int]:
    """Medians (bts, planned) in milliseconds, and the states that bts expands."""
    model = Model(times=Times.exact(generate=1.0, assist=1.0, update=ratio))
    bubble = first_bubble(model, micro_batches)
    searches = [milliseconds(lambda: search(model, bubble)) for _ in range(REPEATS)]
    plans = [milliseconds(lambda: best(model, bubble)) for _ in range(REPEATS)]
    return median(searches), median(plans), search(model, bubble).states


def generic(rng: Random, kind: int) -> Model:
    """Colocated, one server, two servers in turn."""
    generate = round(rng.uniform(5, 15), 3)
    times = Times.exact(
        generate=generate,
        assist=round(generate * rng.uniform(0.3, 2), 3),
        update=round(generate * rng.uniform(0.05, 1), 3),
        score=round(generate * rng.uniform(0.02, 0.4), 3),
        switch=round(generate * rng.uniform(0.05, 0.6), 3),
    )
    return Model(times=times, servers=kind % 3)


def generic_durations(micro_batches: int) -> str:
    rng = Random(128)
    models = [generic(rng, kind) for kind in range(REPEATS)]
    found, plans, states, past = [], [], [], 0
    for model in models:
        bubble = first_bubble(model, micro_batches)
        start = thread_time()
        choice = search(model, bubble)
        found.append((thread_time() - start) * 1e3)
        plans.append(milliseconds(partial(best, model, bubble)))
        states.append(choice.states)
        past += choice.exhausted
    found.sort()
    return (
        f"{micro_batches:6} {median(found):9.2f} {found[REPEATS * 9 // 10]:9.1f} {found[-1]:9.1f} "
        f"{median(states):9.0f} {max(states):9} {past:7} {median(plans):9.2f}"
    )


def draw(cells: Sequence[Sequence[float]], path: Path) -> None:
    """Figure 10: micro-batches against t/g, milliseconds of one search in each cell."""
    font = ImageFont.load_default(16)
    wide, high, left, top = 78, 44, 90, 60
    size = (left + wide * len(RATIOS) + 20, top + high * len(SIZES) + 60)
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    pen.text((left, 18), "One bts search at the first bubble, ms (median of 100)", "black", font)
    most = max(max(row) for row in cells)
    for at, (num, row) in enumerate(zip(SIZES, cells, strict=True)):
        y = top + high * (len(SIZES) - 1 - at)
        pen.text((left - 12, y + high // 2), f"B = {num}", "black", font, anchor="rm")
        for across, value in enumerate(row):
            shade = round(245 - 150 * (value / most) ** 0.5)
            box = (left + wide * across, y, left + wide * (across + 1) - 2, y + high - 2)
            pen.rectangle(box, (shade, shade, 255))
            middle = ((box[0] + box[2]) // 2, (box[1] + box[3]) // 2)
            pen.text(middle, f"{value:.2f}", "black", font, anchor="mm")
    under = top + high * len(SIZES) + 8
    for across, ratio in enumerate(RATIOS):
        pen.text((left + wide * across + wide // 2, under), f"{ratio}", "black", font, anchor="mt")
    pen.text((left + wide * len(RATIOS) // 2, under + 26), "t / g", "black", font, anchor="mt")
    image.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="How long one search for TAG takes.")
    parser.add_argument("--figure", type=Path, help="Write Figure 10 as a PNG.")
    figure: Path | None = parser.parse_args().figure
    print("round durations: bts ms, states; planned ms")
    cells = []
    for num in SIZES:
        row = [round_durations(num, ratio) for ratio in RATIOS]
        cells.append([found for found, _, _ in row])
        print(f"B = {num:5}, t/g = 0.1: {row[0][0]:8.2f} ms, {row[0][2]:5} states; planned {row[0][1]:.3f} ms")
    for num in LARGE:
        found, plan, states = round_durations(num, RATIOS[0])
        print(f"B = {num:5}, t/g = 0.1: {found:8.2f} ms, {states:5} states; planned {plan:.3f} ms")
    print("\ngeneric durations, ms of bts; states; searches that the budget ended; ms of planned")
    print("     B    median      90 %     worst    states      most  budget   planned")
    for num in (*SIZES[1:], *LARGE):
        print(generic_durations(num), flush=True)
    if figure is not None:
        draw(cells, figure)


if __name__ == "__main__":
    main()
