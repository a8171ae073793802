"""Builds the status of a call that has no response: the transport status, Kafka's error name, when to retry.

Errors that the KIP puts into responses are not handled here.
"""

from __future__ import annotations

from typing import Final

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]  # it ships no types

from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaError,
    RetriableError,
    SaslAuthenticationFailedError,
    ThrottlingQuotaExceededError,
)
from kip932.rpc.transport import TransportStatus
from shard_runtime.rpc.budget import THROTTLE_MS

ERROR_DOMAIN: Final = "sharegroups"
_RETRY_MS: Final = 100


class RpcFailureError(Exception):
    """Raised by a handler to end its call with a status instead of a response."""

    def __init__(self, status: TransportStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid_argument(message: str) -> RpcFailureError:
    """Return the failure for a request that breaks the message format, such as a topic id that is not 16 bytes."""
    return RpcFailureError(TransportStatus.INVALID_ARGUMENT, message)


def failure_status(error: BaseException) -> tuple[TransportStatus, str]:
    """Return status and text for an exception that a handler raised; its details stay in the server's log."""
    match error:
        case RpcFailureError():
            return error.status, str(error)
        case DecodeError():
            return TransportStatus.INVALID_ARGUMENT, f"the request bytes cannot be decoded: {error}"
        case KafkaError():
            return _kafka_status(error), error.message
        case _:
            return TransportStatus.INTERNAL, f"the server met an unexpected {type(error).__name__}; see its log"


def _kafka_status(error: KafkaError) -> TransportStatus:
    match error:
        case InvalidRequestError():
            return TransportStatus.INVALID_ARGUMENT
        case ThrottlingQuotaExceededError():
            return TransportStatus.RESOURCE_EXHAUSTED
        case RetriableError():
            return TransportStatus.UNAVAILABLE
        case ClusterAuthorizationFailedError():
            return TransportStatus.PERMISSION_DENIED
        case SaslAuthenticationFailedError():
            return TransportStatus.UNAUTHENTICATED
        case _:
            return TransportStatus.ABORTED


def expected(error: BaseException) -> bool:
    """Return whether the exception is an answer to the caller, not a fault to log with its traceback."""
    return isinstance(error, RpcFailureError | DecodeError | KafkaError)


def rich_status(error: BaseException) -> status_pb2.Status:
    """Return a google.rpc.Status with ErrorInfo (Kafka's error name and number) and, where a retry helps, RetryInfo."""
    status, message = failure_status(error)
    details = []
    if isinstance(error, KafkaError):
        info = error_details_pb2.ErrorInfo(
            reason=error.name, domain=ERROR_DOMAIN, metadata={"kafka_error_code": str(error.code)}
        )
        details.append(_packed(info))
    if isinstance(error, RetriableError):
        delay_ms = THROTTLE_MS if isinstance(error, ThrottlingQuotaExceededError) else _RETRY_MS
        delay = duration_pb2.Duration(nanos=delay_ms * 1_000_000)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(code=code_pb2.Code.Value(status.value), message=message, details=details)


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
