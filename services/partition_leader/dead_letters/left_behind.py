"""Dead letters left behind by share-partitions that retired because their groups no longer have a member here (PL-922).

Remembers how many there are and since when, and has each such share-partition loaded again just to write them: when
topics or configs change, and every half minute. The stored state then decides what is written; the numbers here are
only for reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from kip932.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import SharePartitionKey
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.reports import AGAIN_MS as REPORT_AGAIN_MS
from partition_leader.dead_letters.reports import Who, offsets_text
from partition_leader.share_partition.dead_letter_port import LettersWaiting
from partition_leader.share_partition.deadlines import Deadlines
from shard_runtime.clock import Clock
from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

#: How long after an attempt the next one is due, unless topics or configs change earlier.
AGAIN_MS: Final = 30_000
#: How long attempts are more frequent after such a change, and their interval then: a new topic has no leader at first.
SOON_MS: Final = 10_000
SOON_RETRY_MS: Final = 2_000
#: How many share-partitions are loaded at a time, and the pause before the next ones are loaded.
SLICE: Final = 50
SLICE_PAUSE_MS: Final = 200
#: The maximum number of share-partitions remembered; the dead letters of others wait until a member fetches.
LEFT_MAX: Final = 10_000
#: Errors after which no dead letters are left here: the state or the partition is deleted, or another process has it.
_NOTHING_WAITS: Final = (
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)


@dataclass(slots=True)
class LeftBehind:
    """The dead letters that one share-partition left behind. `reason`: why they could not be written; empty if that was
    not tried."""

    letters: int
    oldest_ms: int
    reason: str
    due_ms: int

    def waiting(self, topic: str, now_ms: int) -> LettersWaiting:
        """Return them in the form that is reported to operators."""
        due_ms = max(0, self.due_ms - now_ms)
        return LettersWaiting(self.letters, max(0, now_ms - self.oldest_ms), 1, topic, self.reason, due_ms)


class LeftBehindLetters:
    """All dead letters left behind in a process. `load` loads a share-partition to write its dead letters; set it
    before the first call of `note`."""

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self.load: Callable[[SharePartitionKey], None] = lambda _: None
        self._deadlines = deadlines
        self._clock = clock
        self._left: dict[SharePartitionKey, LeftBehind] = {}
        self._soon_until_ms = 0
        self._lines = RateLimitedLog(log, every_s=REPORT_AGAIN_MS / 1000)

    def note(self, who: Who, stretches: Sequence[Stretch], reason: str) -> None:
        """Note that these dead letters are left behind."""
        key = who.key
        if not stretches:
            return
        self._lines.warning(
            "dead_letters_orphaned",
            key=key,
            **who.names(),
            offsets=offsets_text(sorted((stretch.first, stretch.last) for stretch in stretches)),
            cause=reason or "they have not been tried yet",
            effect="their share-partition was dropped, because its group no longer has a member here or another node "
            "takes it over; while this node leads it, they are retried when topics or configs change, and every half "
            "minute",
        )
        if key not in self._left and len(self._left) >= LEFT_MAX:
            return
        oldest_ms, now_ms = min(stretch.since_ms for stretch in stretches), self._clock.now_ms()
        due_ms = now_ms + (SOON_RETRY_MS if now_ms < self._soon_until_ms else AGAIN_MS)
        found = self._left.setdefault(key, LeftBehind(0, oldest_ms, reason, due_ms))
        found.letters += sum(stretch.letters for stretch in stretches)
        found.oldest_ms = min(found.oldest_ms, oldest_ms)
        self._arm()

    def taken(self, key: SharePartitionKey) -> int | None:
        """Forget a share-partition whose new object has taken over its dead letters. Returns the time since which the
        oldest was known to be waiting; None if nothing was left behind."""
        left = self._left.pop(key, None)
        return None if left is None else left.oldest_ms

    def loaded(self, key: SharePartitionKey, error: KafkaError | None) -> None:
        """Forget a share-partition if it was loaded, and so has taken over its dead letters, or if `error` shows that
        none are left here."""
        if error is None or isinstance(error, _NOTHING_WAITS):
            self._left.pop(key, None)

    def get(self, key: SharePartitionKey) -> LeftBehind | None:
        """Return what a share-partition has left behind; None if nothing."""
        return self._left.get(key)

    def items(self) -> Iterable[tuple[SharePartitionKey, LeftBehind]]:
        """Return everything that was left behind."""
        return self._left.items()

    def retry(self) -> None:
        """Retry failed dead letters now, because topics or configs changed."""
        now_ms = self._clock.now_ms()
        self._soon_until_ms = now_ms + SOON_MS
        for left in self._left.values():
            left.due_ms = min(left.due_ms, now_ms)
        self._arm()

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()

    def _arm(self) -> None:
        self._deadlines.set(self._due, min((left.due_ms for left in self._left.values()), default=None))

    def _due(self, now_ms: int) -> None:
        due = [key for key, left in self._left.items() if left.due_ms <= now_ms]
        for key in due[:SLICE]:
            self._left[key].due_ms = now_ms + AGAIN_MS
        for key in due[:SLICE]:
            try:
                self.load(key)
            except KafkaError as error:
                self.loaded(key, error)
        for key in due[SLICE:]:
            if key in self._left:
                self._left[key].due_ms = now_ms + SLICE_PAUSE_MS
        self._arm()
