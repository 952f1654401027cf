"""docs/metrics.md is what the tables say, and the tables are what daemons make."""

from daemons.metrics.board import Board
from daemons.metrics.families import DAEMONS
from daemons.metrics.page import metrics_page
from tests.config.support import ROOT


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page(), "run: python -m daemons.metrics.page"


def test_every_metric_is_on_the_page_under_the_name_it_is_scraped_by() -> None:
    page = metrics_page()
    for families in DAEMONS.values():
        for metric in Board(families).registry.collect():
            name = metric.name + ("_total" if metric.type == "counter" else "")
            assert f"| `{name}` | {metric.type} |" in page
