"""Which layout of ranks and width is taken: what is sent, what fits, by memory alone and by time."""

from dataclasses import replace

import pytest

from broker.planning.layouts import Exchange, Option, Trainers, Work, options, ordered
from digend.engines.forwards import plan_forwards
from digend.engines.ranks.dealing import deal
from digend.rl.layouts import Layout
from digend.wire.refs import BlobRef
from digend.wire.tasks import UpdateItem

GB = 10**9
WORK = Work(pairs=96, trained=8, batch=4)
WEIGHTS = Exchange(weights=20 * GB, gradient=40 * GB)
ADAPTER = Exchange(weights=20 * GB, gradient=GB // 10)
FOUR = Trainers(boxes=["a"] * 4, limit=80 * GB)


def needed(layout: Layout, width: int) -> int:
    """100 GB of what can be cut, 2 more for each timestep of a pass, and 30 more where weights stay whole."""
    kept = 30 * GB if layout.shards > 1 and not layout.reshard else 0
    return 100 * GB // layout.shards + kept + 2 * GB * width


def slim(layout: Layout, width: int) -> int:
    return 20 * GB // layout.shards + 2 * GB * width


def best(
    *counts: int,
    work: Work = WORK,
    exchange: Exchange = WEIGHTS,
    trainers: Trainers = FOUR,
    adapter: bool = False,
    present: int = 1,
) -> tuple[Option, bool]:
    found = options(work, exchange, trainers, slim if adapter else needed, counts or trainers.counts(), present)
    tried, by_time = ordered(found, adapter=adapter, present=present)
    return tried[0], by_time


@pytest.mark.parametrize(
    ("layout", "sent"),
    [
        (Layout(ranks=1), 0.0),
        (Layout(ranks=4, replicas=4), 2 * 40 * 3 / 4),
        (Layout(ranks=4), 6 * (20 + 20 + 40) * 3 / 4),
        (Layout(ranks=4, reshard=False), (20 + 40) * 3 / 4),
        (Layout(ranks=4, replicas=2), 6 * (20 + 20 + 40) / 2 + 2 * 40 / 2 / 2),
        (Layout(ranks=4, replicas=2, reshard=False), (20 + 40) / 2 + 2 * 40 / 2 / 2),
    ],
)
def test_what_a_rank_sends_in_six_passes(layout: Layout, sent: float) -> None:
    assert WEIGHTS.sent(layout, 6) == sent * GB


@pytest.mark.parametrize("samples", [1, 5, 12])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_passes_are_those_that_are_dealt(samples: int, ranks: int, width: int) -> None:
    ref = BlobRef(owner="o", instance="i", id="b", num_bytes=0, digest="")
    items = [
        UpdateItem(
            prompt="p",
            index=index,
            advantage=1.0,
            timesteps=tuple(range(8)),
            levels=(0.7,) * 8,
            trajectory=ref,
            condition=ref,
        )
        for index in range(samples)
    ]
    work = Work(pairs=8 * samples, trained=8, batch=4)
    for rank in range(ranks):
        passes = deal(plan_forwards(items, 4, width), rank, ranks, 4 * width)
        assert len(passes) == work.passes(ranks, width)
        assert sum(len(each.pairs) for each in passes if not each.padding) <= work.share(ranks)


def test_widths_are_doubled_until_a_rank_needs_one_pass() -> None:
    assert WORK.widths(1, 1) == [1, 2, 4, 8]
    assert WORK.widths(12, 5) == [1, 2, 5]
    assert replace(WORK, compute={3: 1.0}).widths(1, 6) == [1, 2, 3, 4, 6, 8]


def test_counts_are_doublings_and_all() -> None:
    assert Trainers(boxes=["a"] * 6).counts() == [1, 2, 4, 6]
    assert {each.layout.ranks for each in options(replace(WORK, pairs=3), WEIGHTS, FOUR, needed, [1, 2, 4], 1)} == {
        1,
        2,
    }


def test_by_memory_alone() -> None:
    """Whole weights and gradient kept where that fits, at the largest width; else given back; else nothing."""
    chosen, by_time = best()
    assert (chosen.layout, chosen.width, by_time) == (Layout(ranks=4, reshard=False), 8, False)
    tight = replace(FOUR, limit=45 * GB)
    chosen, _ = best(trainers=tight)
    assert (chosen.layout, chosen.width) == (Layout(ranks=4), 8)
    chosen, _ = best(trainers=replace(FOUR, limit=32 * GB))
    assert (chosen.layout, chosen.width) == (Layout(ranks=4), 2)
    chosen, _ = best(trainers=replace(FOUR, limit=10 * GB))
    assert chosen.fits is False
    chosen, _ = best(trainers=replace(FOUR, limit=None))
    assert chosen.fits is None


def test_an_adapter_has_whole_weights_on_every_rank_while_they_fit() -> None:
    chosen, _ = best(exchange=ADAPTER, adapter=True)
    assert (chosen.layout, chosen.width) == (Layout(ranks=4, replicas=4), 8)
    chosen, _ = best(exchange=ADAPTER, adapter=True, trainers=replace(FOUR, limit=21 * GB))
    assert chosen.layout == Layout(ranks=4, replicas=2, reshard=False)


def test_the_number_of_ranks_of_the_job_stays() -> None:
    chosen, _ = best(2, trainers=replace(FOUR, limit=100 * GB))
    assert chosen.layout.ranks == 2


def test_weights_that_cannot_be_cut() -> None:
    found = options(WORK, WEIGHTS, replace(FOUR, whole="adafactor"), needed, [4], 1)
    assert {each.layout.name for each in found} == {"replicate"}


def test_copies_stay_on_a_box_where_they_fit() -> None:
    two = Trainers(boxes=["a", "a", "b", "b"], limit=100 * GB)
    chosen, _ = best(trainers=two)
    assert (chosen.layout, chosen.crosses) == (Layout(ranks=4, replicas=2, reshard=False), False)
    chosen, _ = best(trainers=replace(two, limit=75 * GB))
    assert (chosen.layout, chosen.crosses) == (Layout(ranks=4, reshard=False), True)


def test_by_time() -> None:
    """40 s in sequence, 24 s at width 8 on one device: a quarter of it on four, and what they send."""
    timed = replace(WORK, compute={1: 40.0, 8: 24.0})
    chosen, by_time = best(work=timed, exchange=replace(WEIGHTS, bandwidth=45e9))
    assert (chosen.layout, chosen.width, by_time) == (Layout(ranks=4, reshard=False), 8, True)
    assert (chosen.compute, chosen.exchange, chosen.seconds) == (6.0, 1.0, 7.0)
    alone = replace(FOUR, limit=200 * GB)
    chosen, _ = best(work=timed, exchange=replace(WEIGHTS, bandwidth=GB), trainers=alone)
    assert (chosen.layout.ranks, chosen.seconds) == (1, 24.0)


def test_without_a_bandwidth_times_decide_nothing() -> None:
    chosen, by_time = best(work=replace(WORK, compute={1: 40.0, 8: 24.0}))
    assert (chosen.compute, chosen.exchange, chosen.seconds, by_time) == (6.0, None, None, False)


def test_the_width_of_the_job_stays_where_another_is_as_fast() -> None:
    timed = replace(WORK, compute={1: 24.1, 8: 24.0})
    trainers = replace(FOUR, limit=200 * GB)
    chosen, _ = best(1, work=timed, trainers=trainers, present=1)
    assert chosen.width == 1
    chosen, _ = best(1, work=timed, trainers=trainers, present=8)
    assert chosen.width == 8
