"""The time at which each query last finished a trigger, for Prometheus (PM-65). Triggers that find nothing count.

The age of the newest entry is the same for an idle cluster and for a query that hangs or waits for its store; this
gauge distinguishes them. It is a time, not an age, so that it is still right in a text file that is read later.
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
        """Begin a series for each kind when the job begins, even if its first trigger never ends."""
        with self._lock:
            self._ended_s = dict.fromkeys(kinds, self._now())

    def look(self, progress: Mapping[Kind, Mapping[str, Any] | None]) -> None:
        """Take the newest progress of each query, None while it has none. A changed progress means a finished trigger.

        A restarted query has no progress until it finishes a trigger, so its kind keeps its last time.
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
