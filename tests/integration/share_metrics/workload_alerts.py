"""Evaluates alerts over what is scraped from real processes, as Prometheus would, and judges them.

Time is stretched: scrapes are seconds apart, and ten or more times as far apart for the alerts, which wait for minutes.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.support.promtool import SCRAPED, Labels, firing

RULES: Final = Path(__file__).parents[3] / "deploy/kubernetes/components/monitoring/history-rules.yaml"
STRETCH: Final = 10
SCRAPE_S: Final = 3.0
#: The interval between samples as the alerts see it.
INTERVAL_S: Final = int(SCRAPE_S * STRETCH)
_TIMEOUT_S: Final = 2.0

#: The values of one scrape, by name and labels.
Scraped = Mapping[tuple[str, Labels], float]


class Expected(NamedTuple):
    """An alert of the rules, the labels that identify it, and when it may fire.

    Moments are on the monotonic clock. The alert may fire only from `since` to `until`; if `by` is given, it must have
    fired by then.
    """

    alert: str
    labels: Mapping[str, str]
    since: float
    until: float
    by: float | None = None


class Watch:
    """Scrapes the ingest's gauges on its own thread, from construction until `end`."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self.began, self._wall = time.monotonic(), time.time()
        self._scraped: list[Scraped | None] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="scrapes", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop scraping."""
        self._ended.set()
        self._thread.join(_TIMEOUT_S * 5)

    def after(self, minutes: float) -> float:
        """Return how many real seconds are `minutes` minutes to the alerts."""
        return minutes * 60 / STRETCH

    def fired(self) -> dict[Labels, list[float]]:
        """Return the moments, on the monotonic clock, at which each alert fired."""
        series, count = written(self._scraped), len(self._scraped)
        with TemporaryDirectory(prefix="sharegroups-alerts-") as folder:
            found = firing(Path(folder), RULES, series, INTERVAL_S, count)
        return {labels: [self.began + at * SCRAPE_S for at in ats] for labels, ats in found.items()}

    def _watch(self) -> None:
        while not self._ended.wait(max(0.0, self.began + len(self._scraped) * SCRAPE_S - time.monotonic())):
            self._scraped.append(self._scrape())

    def _scrape(self) -> Scraped | None:
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:
                text = answer.read().decode()
        except OSError:  # it is not up
            return None
        return {
            (sample.name, frozenset((sample.labels | SCRAPED).items())): self._stretched(sample.name, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("sharegroups_ingest_")
        }

    def _stretched(self, name: str, value: float) -> float:
        return (value - self._wall) * STRETCH if name.endswith("_timestamp_seconds") else value


def written(scraped: Sequence[Scraped | None]) -> dict[tuple[str, Labels], list[str]]:
    """Return each series' value per scrape, and `up`; a series goes stale at the first scrape without it."""
    names = {name for one in scraped if one is not None for name in one}
    series = {("up", frozenset(SCRAPED.items())): ["0" if one is None else "1" for one in scraped]}
    for name in names:
        values = [None if one is None else one.get(name) for one in scraped]
        series[name] = [
            str(value) if value is not None else "_" if before is None else "stale"
            for before, value in pairwise([None, *values])
        ]
    return series


def misjudged(fired: Mapping[Labels, Sequence[float]], expected: Sequence[Expected]) -> list[str]:
    """Return one line for each alert that fired when it should not, or did not fire when it should; empty if all is
    well."""
    wrong = []
    for labels, moments in fired.items():
        allowed = [one for one in expected if {("alertname", one.alert), *one.labels.items()} <= labels]
        for moment in moments:
            if not any(one.since <= moment <= one.until + SCRAPE_S for one in allowed):
                wrong.append(f"{_shown(labels)} fired at {moment:.0f}")
                break
    for one in expected:
        if one.by is None:
            continue
        found = [
            moments for labels, moments in fired.items() if {("alertname", one.alert), *one.labels.items()} <= labels
        ]
        if not any(one.since <= moment <= one.by for moments in found for moment in moments):
            wrong.append(f"{one.alert} {dict(one.labels)} did not fire from {one.since:.0f} to {one.by:.0f}")
    return wrong


def reported(fired: Mapping[Labels, Sequence[float]], began: float) -> list[str]:
    """Return one line for each alert that fired: its labels, and the first and last moment in seconds since the
    start."""
    return sorted(f"{_shown(labels):60} {min(each) - began:6.0f} s to {max(each) - began:6.0f} s, {len(each)} samples"
                  for labels, each in fired.items())  # fmt: skip


def _shown(labels: Labels) -> str:
    found = dict(labels)
    return " ".join([found.pop("alertname"), *(found[name] for name in ("group", "topic", "kind") if name in found)])


def missed(watch: Watch, minutes: float) -> list[Expected]:
    """Let time pass after the ingest was killed just now; return the alert that this raises, and no other."""
    now = time.monotonic()
    time.sleep(watch.after(minutes))
    ended = time.monotonic()
    return [Expected("ShareGroupHistoryGone", {}, now + watch.after(9), ended, ended)]
