"""Tracks partitions whose leader refuses fetches, and decides when a consumer logs that (CL-91).

Pure: responses are passed in with their times, and the methods return lines to log. Holds at most one entry for each
partition of one leader's session.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Final

from kip932.ids import TopicIdPartition

#: A refusal is logged once it has lasted this long, in ms. A fail-over takes less time.
LOG_AFTER_MS: Final = 5_000
#: The interval at which it is logged again, in ms.
LOG_AGAIN_AFTER_MS: Final = 300_000


class _Refusal:
    __slots__ = ("due_ms", "logged", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.due_ms = now_ms + LOG_AFTER_MS
        self.logged = False


class RefusedPartitions:
    """The refusals of one session's leader, and which of them were logged. `refused`: the partitions refused now, and
    since when."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.refused: dict[TopicIdPartition, _Refusal] = {}

    def answered(
        self, refused: Mapping[TopicIdPartition, str], wanted: Mapping[TopicIdPartition, str], now_ms: int
    ) -> list[str]:
        """Process a response to a ShareFetch. Returns the lines to log now.

        `refused`: the cause by partition; partitions that are not in it were served. `wanted`: the topic of each
        partition in the session; partitions that have left it are dropped without a log line. `now_ms`: the time of one
        monotonic clock.
        """
        lines = [
            f"{wanted[partition]}-{partition.partition} serves group {self._group_id!r} again, after "
            f"{(now_ms - before.since_ms) / 1000:.0f} s."
            for partition, before in self.refused.items()
            if before.logged and partition in wanted and partition not in refused
        ]
        self.refused = {
            partition: self.refused.get(partition) or _Refusal(now_ms) for partition in refused if partition in wanted
        }
        for partition, now in self.refused.items():
            if now_ms >= now.due_ms:
                now.logged, now.due_ms = True, now_ms + LOG_AGAIN_AFTER_MS
                lines.append(self._line(f"{wanted[partition]}-{partition.partition}", now, refused[partition], now_ms))
        return lines

    def _line(self, place: str, refusal: _Refusal, cause: str, now_ms: int) -> str:
        return (
            f"{place} has given group {self._group_id!r} no records for {(now_ms - refusal.since_ms) / 1000:.0f} s: "
            f"{cause.rstrip('.')}. The consumer keeps asking for them; other partitions are not affected. See the "
            f"leader's log; `sharegroups groups describe --group {quote(self._group_id)} --verbose` shows what waits."
        )
