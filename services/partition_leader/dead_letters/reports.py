"""Log lines and metrics of dead letters (PL-920): a failure is logged once, then every ten minutes while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog

from kip932.ids import SharePartitionKey
from partition_leader.dead_letters.core.destination import Failure, Reason
from partition_leader.dead_letters.core.waiting import WaitingLetters
from partition_leader.meter import LeaderMeter
from partition_leader.share_partition.dead_letter_port import Spans
from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

AGAIN_MS: Final = 600_000
_SPANS_SHOWN: Final = 20


class Reported:
    """What was last logged about one share-partition's dead letters."""

    __slots__ = ("at_ms", "full", "reason")

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self.at_ms = 0
        self.full = False


class LetterReports:
    """The log lines and metrics of all dead letters of a process."""

    def __init__(self, meter: LeaderMeter) -> None:
        self.meter: Final = meter
        self._lines = RateLimitedLog(log)

    def failed(
        self, who: Who, waiting: WaitingLetters, failure: Failure, *, reported: Reported, now_ms: int, pause_ms: int
    ) -> None:
        """Log that dead letters could not be written and will be retried."""
        if reported.reason is failure.reason and now_ms < reported.at_ms + AGAIN_MS:
            return
        reported.reason, reported.at_ms = failure.reason, now_ms
        self._lines.warning(
            "dead_letters_waiting",
            key=(who.key, failure.reason),
            **who.names(),
            offsets=offsets_text(waiting.spans()),
            letters=waiting.count,
            reason=failure.reason.value,
            cause=failure.text,
            try_next=failure.advice,
            next_try_in_s=round(pause_ms / 1000, 1),
            effect="the dead letters cannot be written now; their records stay Archiving and are retried, and other "
            "records are delivered meanwhile",
        )

    def given_up(self, who: Who, spans: Spans, failure: Failure) -> None:
        """Count and log records that are archived without a dead letter."""
        letters = sum(last - first + 1 for first, last in spans)
        self.meter.letters_dropped(who.key.group_id, failure.reason.value, letters)
        self._lines.error(
            "records_archived_without_letter",
            key=(who.key, "given up", failure.reason),
            sums={"records": letters},
            **who.names(),
            offsets=offsets_text(spans),
            reason=failure.reason.value,
            cause=failure.text,
            try_next=failure.advice,
        )

    def without_copy(self, who: Who, offsets: Sequence[int], max_message_bytes: int) -> None:
        """Log that dead letters were written without the copy that the group asks for."""
        self._lines.warning(
            "dead_letters_written_without_copy",
            key=(who.key, "without copy"),
            sums={"letters": len(offsets)},
            **who.names(),
            offsets=offsets_text([(offset, offset) for offset in offsets]),
            effect="the dead letters have no key and no value",
            cause="the source record is gone, is not a record, cannot be decoded, or is larger with its headers than "
            f"max.message.bytes of the dead-letter topic ({max_message_bytes})",
        )

    def written(self, who: Who, letters: int, reported: Reported) -> None:
        """Count dead letters that were written; log the recovery if a failure was logged before."""
        self.meter.letters_written(who.key.group_id, letters)
        if reported.reason is not None:
            reported.reason = None
            self._lines.info(
                "dead_letter_writes_recovered", key=(who.key, "again"), sums={"letters": letters}, **who.names()
            )

    def full(self, who: Who, full: bool, letters: int) -> None:
        """Log that the dead letters have reached the bound of PL-916, or no longer do."""
        if full:
            self._lines.error(
                "dead_letter_limit_reached",
                key=(who.key, "full"),
                **who.names(),
                letters=letters,
                effect="no new records of the share-partition are delivered until some of its dead letters are written",
                try_next="see the cause in the line dead_letters_waiting before this one; "
                "sharegroups.errors.deadletterqueue.waiting.max is the bound, and "
                "sharegroups.errors.deadletterqueue.failure=drop gives up dead letters instead",
            )
        else:
            self._lines.info("dead_letter_limit_cleared", key=(who.key, "not full"), **who.names())

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()


class Who:
    """The names of a share-partition, its topic and its dead-letter topic, for log lines."""

    def __init__(self, key: SharePartitionKey, topic: str, queue: str) -> None:
        self.key = key
        self.topic = topic
        self.queue = queue

    def names(self) -> dict[str, Any]:
        """Return the names as log fields."""
        return {
            "group": self.key.group_id,
            "topic": self.topic,
            "partition": self.key.partition,
            "dead_letter_topic": self.queue,
        }


def offsets_text(spans: Spans) -> str:
    """Return ascending offsets as text: adjacent ranges are joined, and the first twenty are shown."""
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    shown = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in joined[:_SPANS_SHOWN])
    more = len(joined) - _SPANS_SHOWN
    return f"{shown} and {more} more ranges" if more > 0 else shown
