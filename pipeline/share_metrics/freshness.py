"""When the queries of an ingest last finished a trigger, for Prometheus (PM-65). A trigger that finds nothing counts.

The age of the newest entry cannot tell an idle cluster from a query that hangs or waits for its store; this can. It is
a time, and no age, so that it says the same in a text file that is read later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from share_metrics.reader import Kind

_NAME: Final = "share_group_ingest_last_trigger_timestamp_seconds"
_WORDS: Final = "When a trigger of the kind ended last, or else the job began; seconds since 1970."


class Freshness(Collector):
    """The collector for a Prometheus registry. The ingest job calls `begin`, then `look` about every second."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._ended_s: dict[Kind, float] = {}
        self._seen: dict[Kind, object] = {}

    def begin(self, kinds: Sequence[Kind]) -> None:
        """The job begins: a kind whose first trigger never ends must have a series, too."""
        with self._lock:
            self._ended_s = dict.fromkeys(kinds, self._now())

    def look(self, progress: Mapping[Kind, Mapping[str, Any] | None]) -> None:
        """Take the newest progress of each query, None while it has none. Another one than before tells of a trigger.

        A query that was begun anew has no progress until it finishes a trigger, so its kind keeps the time it has.
        """
        with self._lock:
            for kind, one in progress.items():
                if one is not None and (trigger := one["timestamp"]) != self._seen.get(kind):
                    self._seen[kind] = trigger
                    self._ended_s[kind] = self._now()

    def collect(self) -> Iterable[Metric]:
        """The family, for a scrape."""
        family = GaugeMetricFamily(_NAME, _WORDS, labels=["kind"])
        with self._lock:
            for kind, ended_s in sorted(self._ended_s.items()):
                family.add_metric([kind], ended_s)
        return [family]
