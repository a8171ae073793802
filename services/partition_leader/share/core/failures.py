"""What a persister error means to a client and to the share-partition (PL-630, PL-631, PL-731)."""

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
    """What becomes of the share-partition."""

    KEEP = "keep"
    RETIRE = "retire"  # finish what is queued, then go
    STOP = "stop"  # leadership is lost: nothing more is written


class Meaning(NamedTuple):
    """The error a client sees, and what becomes of the share-partition."""

    error: KafkaError
    consequence: Consequence


_CONSEQUENCES: Final[dict[type[KafkaError], tuple[type[KafkaError], Consequence]]] = {
    GroupIdNotFoundError: (GroupIdNotFoundError, Consequence.RETIRE),
    UnknownTopicOrPartitionError: (UnknownTopicOrPartitionError, Consequence.RETIRE),
    FencedStateEpochError: (NotLeaderOrFollowerError, Consequence.RETIRE),
    FencedLeaderEpochError: (NotLeaderOrFollowerError, Consequence.STOP),
    NotLeaderOrFollowerError: (NotLeaderOrFollowerError, Consequence.STOP),
    InvalidRequestError: (UnknownServerError, Consequence.RETIRE),  # PL-634: its state was deleted
}
# Between services only: a client can do nothing about it and learns nothing of it.
_INTERNAL: Final = (ClusterAuthorizationFailedError, GroupAuthorizationFailedError, UnsupportedVersionError)


def meaning(error: KafkaError) -> Meaning:
    """PL-731. The text is kept, so that the client can tell what the coordinator said."""
    if isinstance(error, _INTERNAL):
        return Meaning(UnknownServerError(), Consequence.KEEP)
    if isinstance(error, InQuarantineError):
        return Meaning(error, Consequence.KEEP)
    if isinstance(error, CoordinatorError):
        return Meaning(CoordinatorNotAvailableError(error.message), Consequence.KEEP)
    seen, consequence = _CONSEQUENCES.get(type(error), (UnknownServerError, Consequence.KEEP))
    return Meaning(seen(error.message), consequence)
