"""The times at which triggers of an ingest ended, as a scrape shows them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from share_metrics.ingest.job import Freshness
from share_metrics.reader import Kind

KINDS = (Kind.SHARE_STATE, Kind.GROUP)
NAME = "sharegroups_ingest_last_trigger_timestamp_seconds"


class Watched:
    """Freshness with a clock that is set by the test."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.fresh = Freshness(lambda: self.at)
        self.registry = CollectorRegistry()
        self.registry.register(self.fresh)

    def shown(self) -> list[float | None]:
        return [self.registry.get_sample_value(NAME, {"kind": kind}) for kind in KINDS]


@pytest.mark.rule("PM-65")
def test_a_trigger_counts_when_it_is_seen_first_and_one_without_news_counts() -> None:
    watched = Watched()
    assert watched.shown() == [None, None]
    watched.fresh.begin(KINDS)
    assert watched.shown() == [1_000, 1_000]
    watched.at = 1_010
    watched.fresh.update({Kind.SHARE_STATE: {"timestamp": "a", "numInputRows": 7}, Kind.GROUP: None})
    assert watched.shown() == [1_010, 1_000]
    watched.at = 1_070
    watched.fresh.update({Kind.SHARE_STATE: {"timestamp": "a"}, Kind.GROUP: {"timestamp": "a", "numInputRows": 0}})
    assert watched.shown() == [1_010, 1_070], "the same trigger, seen again, and the first one of the other"
    watched.at = 1_080
    watched.fresh.update({Kind.SHARE_STATE: None, Kind.GROUP: {"timestamp": "b"}})
    assert watched.shown() == [1_010, 1_080], "a query that waits for its store keeps the time"
