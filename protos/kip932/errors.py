"""Kafka's error numbers as one exception tree.

    KafkaError
    ├── RetriableError            retry, perhaps after looking up the current leader or coordinator
    │   └── CoordinatorError      … the coordinator moved, is loading, or is not available
    ├── FencedError               a newer epoch exists; this caller must start over
    └── (the rest)                final: the request itself must change

One class per number that the KIP or this suite uses; InQuarantineError has the number of its base, for callers that do
not know it. `code` is Kafka's number; the docstring is the default message.
"""

from __future__ import annotations

from typing import ClassVar, Final

NONE: Final = 0


class KafkaError(Exception):
    """An error that carries one of Kafka's error numbers."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or self.name)

    @property
    def message(self) -> str:
        """The error's human-readable text."""
        return str(self.args[0])


class RetriableError(KafkaError):
    """The same request may succeed later."""


class CoordinatorError(RetriableError):
    """The coordinator cannot answer now; look it up again and retry."""


class FencedError(KafkaError):
    """A newer epoch exists; start over."""


class UnknownServerError(KafkaError):
    """An error occurred on the server for which Kafka has no number; see the server's log."""

    code = -1
    name = "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(KafkaError):
    """The offset is outside the log."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessageError(KafkaError):
    """The record batch cannot be decoded."""

    code = 2
    name = "CORRUPT_MESSAGE"


class UnknownTopicOrPartitionError(RetriableError):
    """This server does not know the topic or partition."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"


class LeaderNotAvailableError(RetriableError):
    """The partition currently has no live leader."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"


class NotLeaderOrFollowerError(RetriableError):
    """This node does not lead the partition."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOutError(RetriableError):
    """The request was not confirmed in time; it may still take effect."""

    code = 7
    name = "REQUEST_TIMED_OUT"


class MessageTooLargeError(KafkaError):
    """The record batch is larger than max.message.bytes."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class NetworkError(RetriableError):
    """The peer went away before it answered."""

    code = 13
    name = "NETWORK_EXCEPTION"


class CoordinatorLoadInProgressError(CoordinatorError):
    """The coordinator is still replaying its log."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailableError(CoordinatorError):
    """The coordinator is currently not available."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"


class InQuarantineError(CoordinatorNotAvailableError):
    """Stored data is damaged; it is neither read nor changed until an operator decides what becomes of it."""

    # It has its base's number: a caller that does not know this class waits, as for an unavailable coordinator.


class NotCoordinatorError(CoordinatorError):
    """This node is not the coordinator."""

    code = 16
    name = "NOT_COORDINATOR"


class InvalidTopicError(KafkaError):
    """The topic name is not valid."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class NotEnoughReplicasError(RetriableError):
    """Fewer store replicas are in sync than min.insync.replicas asks for."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The batch was written but too few store replicas confirmed it."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcksError(KafkaError):
    """The acks of a Produce are neither 1 nor -1 (all)."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class InvalidGroupIdError(KafkaError):
    """The group id is not valid."""

    code = 24
    name = "INVALID_GROUP_ID"


class UnknownMemberIdError(KafkaError):
    """The coordinator does not know this member."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"


class TopicAuthorizationFailedError(KafkaError):
    """Not authorised for the topic."""

    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(KafkaError):
    """Not authorised for the group."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(KafkaError):
    """Not authorised for the cluster."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class TransactionalIdAuthorizationFailedError(KafkaError):
    """Not authorised for the transactional id."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class UnsupportedSaslMechanismError(KafkaError):
    """There is no such SASL mechanism; users have SCRAM-SHA-256 and SCRAM-SHA-512."""

    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"


class UnsupportedVersionError(KafkaError):
    """The share-group protocol is not enabled on this cluster."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(KafkaError):
    """A topic of this name exists already."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not valid."""

    code = 37
    name = "INVALID_PARTITIONS"


class InvalidConfigError(KafkaError):
    """The configuration is not valid."""

    code = 40
    name = "INVALID_CONFIG"


class InvalidRequestError(KafkaError):
    """The request is malformed."""

    code = 42
    name = "INVALID_REQUEST"


class UnsupportedForMessageFormatError(KafkaError):
    """The record batch is in a format that is older or newer than Kafka's format 2."""

    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class OutOfOrderSequenceNumberError(KafkaError):
    """The batch's sequence number leaves a gap."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(KafkaError):
    """The batch gives no sequence, and the producer has used sequence 0 before."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(FencedError):
    """A newer producer epoch exists."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(KafkaError):
    """The transaction is not in a state that allows this."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(KafkaError):
    """The producer id does not belong to this transactional id."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(KafkaError):
    """The transaction time-out is larger than allowed."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(RetriableError):
    """Another change of this transaction is in progress; try again."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"


class KafkaStorageError(RetriableError):
    """The store refused the write."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"


class SaslAuthenticationFailedError(KafkaError):
    """The caller could not be authenticated by its token, password or certificate."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class NonEmptyGroupError(KafkaError):
    """The group still has members."""

    code = 68
    name = "NON_EMPTY_GROUP"


class GroupIdNotFoundError(KafkaError):
    """The group does not exist."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"


class FencedLeaderEpochError(FencedError):
    """A newer leader epoch is stored for the share-partition."""

    code = 74
    name = "FENCED_LEADER_EPOCH"


class UnsupportedCompressionTypeError(KafkaError):
    """The record batch uses a compression type that is not supported here."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class OffsetNotAvailableError(RetriableError):
    """The offset is not available yet."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"


class GroupMaxSizeReachedError(KafkaError):
    """The group has reached its maximum number of members."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class InvalidRecordError(KafkaError):
    """The record batch is not valid."""

    code = 87
    name = "INVALID_RECORD"


class ThrottlingQuotaExceededError(RetriableError):
    """The server currently has no capacity for the call; try again after throttle_time_ms."""

    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"


class ProducerFencedError(FencedError):
    """A newer producer with this transactional id exists."""

    code = 90
    name = "PRODUCER_FENCED"


class ResourceNotFoundError(KafkaError):
    """There is no such user, or it has no such credentials."""

    code = 91
    name = "RESOURCE_NOT_FOUND"


class DuplicateResourceError(KafkaError):
    """The request names something twice."""

    code = 92
    name = "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(KafkaError):
    """The user's name or credentials are not acceptable."""

    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"


class UnknownTopicIdError(RetriableError):
    """This server does not know the topic id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"


class TransactionalIdNotFoundError(KafkaError):
    """There is no record of the transactional id."""

    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"


class FencedMemberEpochError(FencedError):
    """The member's epoch is stale."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"


class InvalidRecordStateError(KafkaError):
    """This member has not acquired the record, or no longer holds it."""

    code = 121
    name = "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(RetriableError):
    """The leader holds no such share session."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpochError(RetriableError):
    """The share session epoch is not the expected one."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpochError(FencedError):
    """A newer state epoch is stored for the share-partition."""

    code = 124
    name = "FENCED_STATE_EPOCH"


class ShareSessionLimitReachedError(RetriableError):
    """The leader has reached its maximum number of share sessions."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"


class GroupDeletionFailedError(KafkaError):
    """The group's deletion failed."""

    code = 134
    name = "GROUP_DELETION_FAILED"


_BY_CODE: Final[dict[int, type[KafkaError]]] = {
    error.code: error
    for error in (
        UnknownServerError,
        OffsetOutOfRangeError,
        CorruptMessageError,
        UnknownTopicOrPartitionError,
        LeaderNotAvailableError,
        NotLeaderOrFollowerError,
        RequestTimedOutError,
        MessageTooLargeError,
        NetworkError,
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        NotCoordinatorError,
        InvalidTopicError,
        NotEnoughReplicasError,
        NotEnoughReplicasAfterAppendError,
        InvalidRequiredAcksError,
        InvalidGroupIdError,
        UnknownMemberIdError,
        TopicAuthorizationFailedError,
        GroupAuthorizationFailedError,
        ClusterAuthorizationFailedError,
        TransactionalIdAuthorizationFailedError,
        UnsupportedSaslMechanismError,
        UnsupportedVersionError,
        TopicAlreadyExistsError,
        InvalidPartitionsError,
        InvalidConfigError,
        InvalidRequestError,
        UnsupportedForMessageFormatError,
        OutOfOrderSequenceNumberError,
        DuplicateSequenceNumberError,
        InvalidProducerEpochError,
        InvalidTxnStateError,
        InvalidProducerIdMappingError,
        InvalidTransactionTimeoutError,
        ConcurrentTransactionsError,
        KafkaStorageError,
        SaslAuthenticationFailedError,
        NonEmptyGroupError,
        GroupIdNotFoundError,
        FencedLeaderEpochError,
        UnsupportedCompressionTypeError,
        OffsetNotAvailableError,
        GroupMaxSizeReachedError,
        InvalidRecordError,
        ThrottlingQuotaExceededError,
        ProducerFencedError,
        ResourceNotFoundError,
        DuplicateResourceError,
        UnacceptableCredentialError,
        UnknownTopicIdError,
        TransactionalIdNotFoundError,
        FencedMemberEpochError,
        InvalidRecordStateError,
        ShareSessionNotFoundError,
        InvalidShareSessionEpochError,
        FencedStateEpochError,
        ShareSessionLimitReachedError,
        GroupDeletionFailedError,
    )
}


def error_class(code: int) -> type[KafkaError]:
    """The class for one of Kafka's error numbers; UnknownServerError for a number this suite does not use."""
    return _BY_CODE.get(code, UnknownServerError)


def error_for(code: int, message: str | None = None) -> KafkaError | None:
    """The exception for a response's (error_code, error_message); None for NONE."""
    return None if code == NONE else error_class(code)(message or None)
