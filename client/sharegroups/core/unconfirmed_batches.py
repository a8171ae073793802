"""Batches in doubt: those that were sent and of which it is not known that they were not appended (CM-43).

Such a batch goes again under the topic id it was sent under, or nowhere: under the id of a topic that was created again
under the same name (CM-21) it could lie, and be delivered, twice. Pure: errors and what metadata said go in.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kip932.errors import (
    CorruptMessageError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    KafkaError,
    KafkaStorageError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)

#: What a leader answers only when it has written nothing of the batches. Every other answer leaves that open:
#: - NOT_LEADER_OR_FOLLOWER is also the answer when leadership ends while a flush is under way, or behind one that was
#:   confirmed after the lease had lapsed (CM-3, CM-13);
#: - UNKNOWN_TOPIC_OR_PARTITION also when a flush of unknown outcome finds the topic's streams deleted: another leader
#:   may have served its records before;
#: - REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND say so themselves (CM-15, CM-42);
#: - an answer that leaves a partition out, a broken connection and a code of another build say nothing.
_NOTHING_WRITTEN: Final = frozenset(
    {
        UnknownTopicIdError.code,  # asked before a log is looked up
        NotEnoughReplicasError.code,  # refused before the write, or by the store in place of it
        KafkaStorageError.code,  # the queue is full, or the store refused the write, which it never saw before
        OutOfOrderSequenceNumberError.code,
        DuplicateSequenceNumberError.code,
        InvalidRequiredAcksError.code,
        InvalidProducerEpochError.code,
        CorruptMessageError.code,
        InvalidRecordError.code,
        InvalidRequestError.code,
        MessageTooLargeError.code,
        TopicAuthorizationFailedError.code,
    }
)


class Meaning(NamedTuple):
    """What a topic's name meant in metadata of a version. Versions grow (CM-20), and an id never comes back."""

    topic_id: bytes
    version: int


class Course(Enum):
    """What is to be done with a batch whose turn it is."""

    SEND = "send"
    WAIT = "wait"
    FAIL = "fail"


def nothing_written(answer: KafkaError) -> bool:
    """Whether this answer says that this attempt appended nothing; it says nothing of attempts before it."""
    return answer.code in _NOTHING_WRITTEN


def course(doubt: Meaning | None, now: Meaning) -> Course:
    """Judge a batch by the first attempt that left it in doubt, if one did, and by what its topic's name means `now`.

    Metadata no newer than those it was sent by come from a node that is behind: they are waited out.
    """
    if doubt is None or doubt.topic_id == now.topic_id:
        return Course.SEND
    return Course.FAIL if now.version > doubt.version else Course.WAIT


def created_again(topic: str) -> UnknownTopicIdError:
    """Why a batch in doubt fails, and what its owner can do."""
    return UnknownTopicIdError(
        f"topic {topic!r} was deleted and created again while the record was under way: it may have been stored in "
        "the deleted topic. Send it again if the new topic should have it"
    )
