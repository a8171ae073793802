"""Unconfirmed batches: the producer has sent them and does not know whether the leader appended them (CM-43).

The producer retries such a batch only with the topic id that it was first sent with. When a topic is deleted and
re-created with the same name (CM-21), it has another id, and a retry with that id could store and deliver the records
twice. Pure: errors and the topic ids from the metadata are passed in.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kip932.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)

#: A leader returns these errors only if it has appended none of the batches. After any other outcome it is unknown
#: whether it has:
#: - NOT_LEADER_OR_FOLLOWER is also returned if leadership ends during a flush, and if a flush was confirmed only after
#:   the lease had expired (CM-3, CM-13);
#: - UNKNOWN_TOPIC_OR_PARTITION is also returned if a flush of unknown outcome finds that the topic's streams are
#:   deleted: another leader may have served the records before that;
#: - REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND mean that the outcome is unknown (CM-15, CM-42);
#: - a response without the partition, a broken connection and an error code unknown to this version say nothing about
#:   the outcome.
_NOTHING_WRITTEN: Final = frozenset(
    {
        UnknownTopicIdError.code,  # the leader checks the id before it looks up the log
        NotEnoughReplicasError.code,  # the leader refused before the write, or the store refused the write
        KafkaStorageError.code,  # the queue is full, or the store refused the write the first time it was sent
        OutOfOrderSequenceNumberError.code,
        DuplicateSequenceNumberError.code,
        InvalidRequiredAcksError.code,
        InvalidProducerEpochError.code,
        CorruptMessageError.code,
        InvalidRecordError.code,
        InvalidRequestError.code,
        MessageTooLargeError.code,
        TopicAuthorizationFailedError.code,
        UnsupportedCompressionTypeError.code,
        CoordinatorNotAvailableError.code,  # this and the next four: the leader checks the transaction first
        ConcurrentTransactionsError.code,
        InvalidTxnStateError.code,
        InvalidProducerIdMappingError.code,
        ProducerFencedError.code,
    }
)


class Meaning(NamedTuple):
    """The id that a topic's name had in one metadata version. Versions only increase (CM-20), and ids are never
    reused."""

    topic_id: bytes
    version: int


class Action(Enum):
    """What the producer does with a partition's first waiting batch."""

    SEND = "send"
    WAIT = "wait"
    FAIL = "fail"


def nothing_written(answer: KafkaError) -> bool:
    """Return whether this error means that this attempt appended nothing. It says nothing about earlier attempts."""
    return answer.code in _NOTHING_WRITTEN


def next_action(unconfirmed: Meaning | None, now: Meaning) -> Action:
    """Return whether a batch is sent, waits or fails.

    `unconfirmed` is the topic's meaning at the first attempt that left the batch unconfirmed, None if no attempt did;
    `now` is the topic's current meaning. The batch fails when the name now has another id. It waits while `now` is not
    newer than `unconfirmed`: a different id then only shows that the metadata come from an outdated node.
    """
    if unconfirmed is None or unconfirmed.topic_id == now.topic_id:
        return Action.SEND
    return Action.FAIL if now.version > unconfirmed.version else Action.WAIT


def created_again(topic: str) -> UnknownTopicIdError:
    """Return the error for an unconfirmed batch whose topic was re-created. It says what the application can do."""
    return UnknownTopicIdError(
        f"topic {topic!r} was deleted and created again while the record was under way: it may have been stored in "
        "the deleted topic. Send it again if the new topic should have it"
    )
