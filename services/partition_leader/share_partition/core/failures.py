"""Maps a persister error to the client's error and to the consequence for the share-partition (PL-630, PL-631,
PL-731)."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kip932.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InQuarantineError,
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)


class Consequence(Enum):
    """The consequence for the share-partition."""

    KEEP = "keep"
    RETIRE = "retire"  # finish queued work, then drop
    STOP = "stop"  # leadership is lost: nothing more is written


class Meaning(NamedTuple):
    """The error that a client gets, and the consequence for the share-partition."""

    error: KafkaError
    consequence: Consequence


# By error code, since in the coordinator's own process a refusal may have its own class, such as StaleLeaderError.
_CONSEQUENCES: Final[dict[int, tuple[type[KafkaError], Consequence]]] = {
    GroupIdNotFoundError.code: (GroupIdNotFoundError, Consequence.RETIRE),
    UnknownTopicOrPartitionError.code: (UnknownTopicOrPartitionError, Consequence.RETIRE),
    FencedStateEpochError.code: (NotLeaderOrFollowerError, Consequence.RETIRE),
    FencedLeaderEpochError.code: (NotLeaderOrFollowerError, Consequence.STOP),
    NotLeaderOrFollowerError.code: (NotLeaderOrFollowerError, Consequence.STOP),
    InvalidRequestError.code: (UnknownServerError, Consequence.RETIRE),  # PL-634: its state was deleted
}
# Errors between services, which are not passed on because a client cannot act on them.
_INTERNAL: Final = (ClusterAuthorizationFailedError, GroupAuthorizationFailedError, UnsupportedVersionError)


def meaning(error: KafkaError) -> Meaning:
    """Return what the error means (PL-731). The client gets the coordinator's message, except for internal errors."""
    if isinstance(error, _INTERNAL):
        return Meaning(UnknownServerError(), Consequence.KEEP)
    if isinstance(error, InQuarantineError):
        return Meaning(error, Consequence.KEEP)
    if isinstance(error, CoordinatorError):
        return Meaning(CoordinatorNotAvailableError(error.message), Consequence.KEEP)
    seen, consequence = _CONSEQUENCES.get(error.code, (UnknownServerError, Consequence.KEEP))
    return Meaning(seen(error.message), consequence)
