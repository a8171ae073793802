"""The interface between hosts of share-partitions and the post that writes their dead letters (PL-914)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey
from partition_leader.share_partition.core.effects import DeadLetter
from partition_leader.topic_log.topic_log import TopicLog

Spans = Sequence[tuple[int, int]]


class LetterSender(Protocol):
    """The share-partition that the dead letters come from."""

    @property
    def key(self) -> SharePartitionKey:
        """Its key."""
        ...

    @property
    def log(self) -> TopicLog:
        """The log with its records."""
        ...

    def letters_done(self, dead_letter_id: int, spans: Spans) -> None:
        """Note that these dead letters are written, or given up for good (T15)."""
        ...

    def letters_postponed(self, dead_letter_id: int, spans: Spans) -> None:
        """Note that these dead letters are left to a successor (PL-921)."""
        ...

    def letters_full(self) -> bool:
        """Return whether unwritten dead letters keep new records from being acquired (PL-916)."""
        ...


class LettersWaiting(NamedTuple):
    """The dead letters of one share-partition that are not written yet. `reason`: why the last attempt failed; empty if
    none did. `next_ms`: the time until the next attempt; None while one is running."""

    letters: int
    oldest_ms: int
    attempts: int
    topic: str
    reason: str
    next_ms: int | None


class DeadLetterPost(Protocol):
    """Writes dead letters, retries those that could not be written, and gives up those that cannot be (PL-906 …
    PL-912)."""

    def send(self, sender: LetterSender, letter: DeadLetter) -> None:
        """Write these dead letters, and notify their sender of each, however long that takes. Never waits."""
        ...

    def leave(self, sender: LetterSender) -> None:
        """Finish the dead letters that are being written or were never tried, and postpone the others, because the
        sender retires (PL-921)."""
        ...

    def forget(self, sender: LetterSender) -> None:
        """Drop the dead letters of a sender that has ended, and stop notifying it."""
        ...

    def loaded(self, key: SharePartitionKey, error: KafkaError | None) -> None:
        """Take note of a share-partition that was loaded and has taken over the dead letters that its predecessor left,
        or that could not be loaded because of `error` (PL-922)."""
        ...

    def waiting(self, key: SharePartitionKey) -> LettersWaiting | None:
        """Return the unwritten dead letters of a share-partition; None if it has none."""
        ...
