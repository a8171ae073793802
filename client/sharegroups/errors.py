"""Errors that originate in the client. The cluster's errors are in `kip932.errors`, and can also be imported from here.

RuntimeError
├── IllegalStateError             the call does not fit what the client is doing (CL-20 to CL-28)
└── ConcurrentModificationError   a second thread or task is inside the consumer (CL-29)
ValueError
├── ConfigError                   a setting is unknown, refused or out of range (CL-40)
└── DelayTooLongError             a release asks for a longer delay than its group allows (CL-113)
WakeupError                       wakeup() was called
KafkaError
├── BufferFullError               the producer's memory stayed full (buffer.memory)
├── NotSentError                  the producer was closed before it sent the record
└── DeserializationError          a deserializer failed; Message.error() holds it
"""

from __future__ import annotations

from kip932.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    DuplicateResourceError,
    FencedError,
    FencedLeaderEpochError,
    FencedMemberEpochError,
    FencedStateEpochError,
    GroupAuthorizationFailedError,
    GroupDeletionFailedError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InQuarantineError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRecordStateError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NetworkError,
    NonEmptyGroupError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    ResourceNotFoundError,
    RetriableError,
    SaslAuthenticationFailedError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnacceptableCredentialError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

__all__ = [
    "BufferFullError",
    "ClusterAuthorizationFailedError",
    "ConcurrentModificationError",
    "ConcurrentTransactionsError",
    "ConfigError",
    "CoordinatorError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "DelayTooLongError",
    "DeserializationError",
    "DuplicateResourceError",
    "FencedError",
    "FencedLeaderEpochError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "GroupAuthorizationFailedError",
    "GroupDeletionFailedError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "IllegalStateError",
    "InQuarantineError",
    "InvalidConfigError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidRequestError",
    "InvalidShareSessionEpochError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "KafkaError",
    "KafkaStorageError",
    "KeyDeserializationError",
    "LeaderNotAvailableError",
    "MessageTooLargeError",
    "NetworkError",
    "NonEmptyGroupError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "NotSentError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceNumberError",
    "ProducerFencedError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "RetriableError",
    "SaslAuthenticationFailedError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError",
    "UnacceptableCredentialError",
    "UnknownMemberIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "ValueDeserializationError",
    "WakeupError",
]


class IllegalStateError(RuntimeError):
    """The call is not allowed in the current state of the client."""


class ConcurrentModificationError(RuntimeError):
    """Another thread or task is using the consumer; only wakeup() may be called now (CL-29)."""


class ConfigError(ValueError):
    """A setting is unknown, refused, or has a value that is not allowed."""


class DelayTooLongError(ValueError):
    """A release asks for a longer delay than the group allows; `maximum` is the longest that it allows, in seconds
    (CL-113)."""

    def __init__(self, message: str, maximum: float) -> None:
        super().__init__(message)
        self.maximum = maximum


class WakeupError(Exception):
    """wakeup() was called while the consumer waited, or before that."""


class BufferFullError(RequestTimedOutError):
    """The producer's buffer stayed full; increase buffer.memory, produce more slowly, or wait longer."""


class NotSentError(NetworkError):
    """The producer was closed before it sent the record, which is not stored anywhere."""


class DeserializationError(KafkaError):
    """A deserializer refused the bytes of a record."""


class KeyDeserializationError(DeserializationError):
    """The key deserializer refused the bytes of a record."""

    code = -160
    name = "_KEY_DESERIALIZATION"


class ValueDeserializationError(DeserializationError):
    """The value deserializer refused the bytes of a record."""

    code = -159
    name = "_VALUE_DESERIALIZATION"
