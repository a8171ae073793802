"""Log lines and metrics of delayed records (PL-935, PL-938), and of records whose delivery is taken back too many times
in a row (PL-941).

Logs once when a share-partition reaches its limit of delayed records and once when it is clearly below it again, and
adds up all records that were ever delayed. Nothing is done per record: a share-partition is checked after an event, and
its counts are read at a scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog

from kip932.ids import SHARE_PARTITION_BATCHES_MAX, SharePartitionKey, topic_id_text
from partition_leader.share_partition.core.room import is_below_bound_again
from partition_leader.share_partition.core.status import DelayCause, Delays
from partition_leader.share_partition.core.undelivered import IN_A_ROW_MAX
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

_SETTING: Final = "sharegroups.retry.delayed.max"
#: The maximum of the setting.
_SETTING_MAX: Final = 5_000


class Delaying(Protocol):
    """What these reports need of a share-partition's core."""

    def delays(self) -> Delays:
        """Return how many records are delayed now, and how many ever were."""
        ...

    def delayed_full(self, settings: GroupConfig) -> bool:
        """Return whether delayed records keep new ones from being acquired."""
        ...

    @property
    def not_taken_back(self) -> int:
        """The number of records whose release counted as a delivery although it should have taken the delivery back."""
        ...


class DelayReports:
    """Makes the reports for all share-partitions of a process. `topic_name` returns "" for an unknown topic."""

    def __init__(self, topic_name: Callable[[bytes], str]) -> None:
        self._topic_name = topic_name
        self._lines = RateLimitedLog(log)
        self._full: set[Delaying] = set()
        self._not_taken_back: dict[Delaying, int] = {}
        self._counted: dict[Delaying, dict[DelayCause, int]] = {}
        self._ever: Counter[tuple[str, DelayCause]] = Counter()

    @property
    def ever(self) -> Mapping[tuple[str, DelayCause], int]:
        """How many records have been delayed since the process started, by group and cause, as of the last `count`."""
        return self._ever

    def check(self, key: SharePartitionKey, core: Delaying, config: GroupConfig) -> None:
        """Check a share-partition after an event: log when it reaches its limit of delayed records or is below it
        again, and when releases counted as deliveries although they should have taken them back."""
        if core.not_taken_back:
            self._log_not_taken_back(key, core)
        delays, was_full = core.delays(), core in self._full
        if not delays.counts and not was_full:
            return
        if not was_full and core.delayed_full(config):
            self._full.add(core)
            self._log_reached(key, delays, config)
        elif was_full and is_below_bound_again(delays, config):
            self._full.remove(core)
            self._lines.info(
                "delayed_record_limit_cleared",
                effect="new records are delivered again",
                key=(key, "left"),
                **self._names(key),
                delayed=delays.records,
                pieces=delays.pieces,
            )

    def count(self, key: SharePartitionKey, core: Delaying) -> None:
        """Add the records that became delayed since the last call for the share-partition's object."""
        before = self._counted.get(core, {})
        ever = self._counted[core] = dict(core.delays().ever)
        for cause, records in ever.items():
            self._ever[key.group_id, cause] += records - before.get(cause, 0)

    def forget(self, key: SharePartitionKey, core: Delaying) -> None:
        """Forget a share-partition object that is dropped; its successor is reported and counted separately."""
        self.count(key, core)
        for cause in self._counted.pop(core):
            if not self._ever[key.group_id, cause]:  # a group that never had delayed records leaves no series
                del self._ever[key.group_id, cause]
        self._full.discard(core)
        self._not_taken_back.pop(core, None)

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()

    def _log_not_taken_back(self, key: SharePartitionKey, core: Delaying) -> None:
        more = core.not_taken_back - self._not_taken_back.get(core, 0)
        if not more:
            return
        self._not_taken_back[core] = core.not_taken_back
        self._lines.warning(
            "unhandled_releases_counted",
            key=(key, "not taken back"),
            sums={"records": more},
            **self._names(key),
            bound=f"{IN_A_ROW_MAX} times in a row",
            effect="after that many in a row the next delivery counts, so the records reach share.delivery.count.limit "
            "although no handler began",
            try_next="find out why members take records that they do not begin: workers that are restarted repeatedly, "
            "or jobs that take much longer than before; `sharegroups groups explain` says how often for each record",
        )

    def _log_reached(self, key: SharePartitionKey, delays: Delays, settings: GroupConfig) -> None:
        most = settings.delayed_max
        if delays.records >= most:
            bound = f"{_SETTING}={most}"
            more = f", and so does a higher {_SETTING} (at most {_SETTING_MAX})" if most < _SETTING_MAX else ""
        else:
            bound, more = f"{SHARE_PARTITION_BATCHES_MAX} pieces of the window", ""
        self._lines.warning(
            "delayed_record_limit_reached",
            key=(key, "reached"),
            **self._names(key),
            delayed=delays.records,
            pieces=delays.pieces,
            bound=bound,
            effect="no new records of the share-partition are delivered until fewer are delayed; records whose delay "
            "ends are delivered meanwhile",
            try_next="read in the workers' logs why records fail, and correct that; shorter delays "
            f"(sharegroups.retry.backoff.max.ms) or fewer tries (share.delivery.count.limit) make room too{more}",
        )

    def _names(self, key: SharePartitionKey) -> dict[str, Any]:
        topic = self._topic_name(key.topic_id) or topic_id_text(key.topic_id)
        return {"group": key.group_id, "topic": topic, "partition": key.partition}
