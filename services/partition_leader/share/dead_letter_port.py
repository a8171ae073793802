"""The port between hosts of share-partitions and what writes dead letters (PL-914): hosts send, the post writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey
from partition_leader.share.core.effects import DeadLetter
from partition_leader.topic_log.topic_log import TopicLog

Spans = Sequence[tuple[int, int]]


class LetterSender(Protocol):
    """The share-partition whose records the letters are."""

    @property
    def key(self) -> SharePartitionKey:
        """Its key."""
        ...

    @property
    def log(self) -> TopicLog:
        """The log that has its records."""
        ...

    def letters_done(self, dead_letter_id: int, spans: Spans) -> None:
        """These letters are written, or given up for good (T15)."""
        ...

    def letters_postponed(self, dead_letter_id: int, spans: Spans) -> None:
        """These letters are left to a successor (PL-921)."""
        ...

    def letters_full(self) -> bool:
        """Whether letters that wait keep new records from being acquired (PL-916)."""
        ...


class LettersWaiting(NamedTuple):
    """The letters of one share-partition that are not written yet. `reason`: why the last attempt failed, "" when
    none did. `next_ms`: until the next one, None while one is under way."""

    letters: int
    oldest_ms: int
    attempts: int
    topic: str
    reason: str
    next_ms: int | None


class DeadLetterPost(Protocol):
    """Writes letters, tries those again that could not be written, and gives up what cannot be (PL-906 … PL-912)."""

    def send(self, sender: LetterSender, letter: DeadLetter) -> None:
        """Write these letters; their sender is told of each, however long that takes. Never waits."""
        ...

    def leave(self, sender: LetterSender) -> None:
        """The sender retires: try what is under way to its end, and postpone everything else (PL-921)."""
        ...

    def forget(self, sender: LetterSender) -> None:
        """The sender is gone: tell it nothing more."""
        ...

    def loaded(self, key: SharePartitionKey, error: KafkaError | None) -> None:
        """A share-partition was loaded, or could not be with `error`: what a predecessor left behind is its own now, or
        gone with the state (PL-922)."""
        ...

    def waiting(self, key: SharePartitionKey) -> LettersWaiting | None:
        """What is not written yet of a share-partition; None for nothing."""
        ...
