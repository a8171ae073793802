"""Decides which failures may be retried, and which prove that nothing was applied (PL-707, PL-723)."""

from __future__ import annotations

from typing import Final

from kip932 import errors
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.state_values import DeleteState, StateCommand
from share_persister.values import PeerRefusedError

_RETRIABLE: Final = frozenset(
    {
        errors.CoordinatorNotAvailableError.code,
        errors.CoordinatorLoadInProgressError.code,
        errors.NotCoordinatorError.code,
        errors.UnknownTopicOrPartitionError.code,
        errors.NetworkError.code,
        errors.RequestTimedOutError.code,
    }
)

#: An attempt that got one of these errors was not applied, and never will be.
_NOT_APPLIED: Final = frozenset(
    {
        errors.FencedLeaderEpochError.code,
        errors.FencedStateEpochError.code,
        errors.InvalidRequestError.code,
        errors.UnknownTopicOrPartitionError.code,
        errors.GroupIdNotFoundError.code,
        errors.TopicAuthorizationFailedError.code,
        errors.GroupAuthorizationFailedError.code,
        errors.ClusterAuthorizationFailedError.code,
        errors.UnsupportedVersionError.code,
    }
)

_BY_STATUS: Final[dict[TransportStatus, type[errors.KafkaError]]] = {
    TransportStatus.DEADLINE_EXCEEDED: errors.RequestTimedOutError,
    TransportStatus.UNIMPLEMENTED: errors.UnsupportedVersionError,
    TransportStatus.INVALID_ARGUMENT: errors.InvalidRequestError,
}

#: What to change when another node does not serve this one.
_REMEDIES: Final = {
    TransportStatus.UNAUTHENTICATED: (
        "that node's ssl.principal.mapping.rules must make a name of this node's certificate"
    ),
    TransportStatus.PERMISSION_DENIED: (
        "give all nodes certificates with one name, or put the name in this node's into super.users there"
    ),
}


def retriable(command: StateCommand, error: errors.KafkaError) -> bool:
    """Return whether another attempt may help: not when there is nothing to delete (SC-48), nor when the stored state
    is in quarantine (SC-114)."""
    if isinstance(error, errors.InQuarantineError):
        return False
    if isinstance(command, DeleteState) and isinstance(error, errors.UnknownTopicOrPartitionError):
        return False
    return error.code in _RETRIABLE


def may_have_applied(error: errors.KafkaError) -> bool:
    """Return whether a request that got `error` as its response may have taken effect, or still may."""
    return error.code not in _NOT_APPLIED and not isinstance(error, errors.InQuarantineError | PeerRefusedError)


def from_transport(error: TransportError) -> errors.KafkaError:
    """Return the Kafka error for a request that got no response (SR-32)."""
    if error.status in _REMEDIES:
        return PeerRefusedError(error.address, str(error), _REMEDIES[error.status])
    return _BY_STATUS.get(error.status, errors.NetworkError)(str(error))
