"""The metrics of one process: made from a table of families, set from its event loop, read by the endpoint.

Owns a registry of its own, never the global one. Invariant: setting a value takes no lock that a reader holds for long,
so that a slow scraper holds nobody up.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from daemons.metrics.families import Family
from digend import __version__


class Board:
    """Values by family; labels are given by name."""

    def __init__(self, families: Sequence[Family]) -> None:
        self.registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._added: dict[tuple[object, ...], Counter] = {}
        """Series by name and labels: to look one up in its counter takes several times as long."""
        self._series: dict[str, dict[tuple[str, ...], Gauge]] = {}
        for family in families:
            self._make(family)
        self.set("digend_build_info", 1, version=__version__)

    def set(self, name: str, value: float, **labels: str) -> None:
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def add(self, name: str, value: float, **labels: str) -> None:
        key = (name, *labels.items())
        series = self._added.get(key)
        if series is None:
            counter = self._counters[name]
            series = self._added[key] = counter.labels(**labels) if labels else counter
        series.inc(value)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def replace(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """All series of a gauge: those that are not named any more are gone."""
        gauge, series = self._gauges[name], self._series.setdefault(name, {})
        for gone in series.keys() - values.keys():
            gauge.remove(*gone)
            del series[gone]
        for labels, value in values.items():
            if labels not in series:
                series[labels] = gauge.labels(*labels)
            series[labels].set(value)

    def _make(self, family: Family) -> None:
        arguments = (family.name, family.meaning, family.labels)
        if family.kind == "gauge":
            self._gauges[family.name] = Gauge(*arguments, registry=self.registry)
        elif family.kind == "counter":
            self._counters[family.name] = Counter(*arguments, registry=self.registry)
        else:
            made = Histogram(*arguments, buckets=family.buckets, registry=self.registry)
            self._histograms[family.name] = made
