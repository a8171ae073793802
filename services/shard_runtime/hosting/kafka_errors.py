"""Translates a failure of the log or the host to the Kafka error that the caller gets (GC-5, SC-15).

This is the coordinators' table. A host takes the mapping as a parameter, so that a leader can pass its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip932 import errors
from shard_runtime.record_log.protocol import (
    AppendRefusedError,
    ShardLostError,
    StoreUnavailableError,
    StreamDeletedError,
)

FailureMapping = Callable[[BaseException], errors.KafkaError]

_KAFKA: Final[dict[type[errors.KafkaError], type[errors.KafkaError]]] = {
    errors.NetworkError: errors.CoordinatorLoadInProgressError,
    errors.NotEnoughReplicasError: errors.CoordinatorNotAvailableError,
    errors.NotEnoughReplicasAfterAppendError: errors.CoordinatorNotAvailableError,
    errors.RequestTimedOutError: errors.CoordinatorNotAvailableError,
    errors.NotLeaderOrFollowerError: errors.NotCoordinatorError,
    errors.KafkaStorageError: errors.NotCoordinatorError,
    errors.MessageTooLargeError: errors.UnknownServerError,
}

_LOG: Final[tuple[tuple[type[Exception], type[errors.KafkaError]], ...]] = (
    (StreamDeletedError, errors.NotCoordinatorError),
    (ShardLostError, errors.NotCoordinatorError),
    (AppendRefusedError, errors.CoordinatorNotAvailableError),
    (StoreUnavailableError, errors.CoordinatorNotAvailableError),
    (TimeoutError, errors.CoordinatorNotAvailableError),
)


def coordinator_failure(error: BaseException) -> errors.KafkaError:
    """Return the error that a coordinator responds with. A KafkaError that SC-15's table does not list is not
    changed."""
    if isinstance(error, errors.KafkaError):
        mapped = _KAFKA.get(type(error))
        return error if mapped is None else mapped(error.message)
    for kind, answer in _LOG:
        if isinstance(error, kind):
            return answer(str(error) or None)
    return errors.UnknownServerError()
