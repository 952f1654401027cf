"""What a shell offers after <TAB>: jobs, workers and nodes that the driver knows, keys of job files and settings.

Functions for click's `shell_complete`. Invariant: a completion says nothing but what it offers; where no driver answers
at once, that is nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from clients.reaching import reach

if TYPE_CHECKING:
    from clients.api import Digend

PATIENCE_S = 1.0
"""For the driver's reply, while somebody waits at a prompt."""

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Found = Iterable[tuple[str, str]]
"""Names and what is said beside each."""


def _asking(question: "Callable[[Digend], Found]") -> Offer:
    def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with reach(ctx, ctx.params.get("address"), ctx.params.get("node"), ctx.params.get("key")).connect(
                PATIENCE_S
            ) as driver:
                driver.require_socket()
                return _items(question(driver), incomplete)
        except Exception:  # whatever it is, the verb itself will say it
            return []

    return offered


def _items(found: Found, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=about) for name, about in found if name.startswith(incomplete)]


def _jobs(driver: "Digend") -> Found:
    return [(job.id, job.state) for job in reversed(driver.newest_jobs().jobs)]


def _workers(driver: "Digend") -> Found:
    return [(worker.name, worker.role) for worker in driver.nodes()]


def _boxes(driver: "Digend") -> Found:
    return [(name, "node") for name in sorted({worker.node for worker in driver.nodes()})]


jobs = _asking(_jobs)
workers = _asking(_workers)
boxes_and_workers = _asking(lambda driver: [*_boxes(driver), *_workers(driver)])
jobs_and_workers = _asking(lambda driver: [*_jobs(driver), *_workers(driver)])


def job_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of a job file, for --set."""
    from digend.config.job import JobConfig
    from digend.config.keys import keys_of

    keys = keys_of(JobConfig).values()
    return _items([(f"{key.path.replace('[]', '[0]')}=", key.type) for key in keys if not key.table], incomplete)


def strategies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from broker.schedule.named import EACH

    return _items([(name.removesuffix("N"), "") for name in EACH], incomplete)


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of settings, and of their tables."""
    return _items([(name, "") for name in _setting_names()], incomplete)


def set_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of settings, for --set."""
    return _items([(f"{name}=", "") for name in _setting_names()], incomplete)


def _setting_names() -> Sequence[str]:
    from digend.config.loader import setting_keys

    return sorted(setting_keys())
