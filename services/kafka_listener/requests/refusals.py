"""Error codes and messages of the node's answers, as Kafka's answers have them (KL-40)."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kip932.errors import (
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    ThrottlingQuotaExceededError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)

NONE: Final = 0
#: Abort this transaction, then go on. Clients that know KIP-890 know this code; INVALID_TXN_STATE ends their producer.
TRANSACTION_ABORTABLE: Final = 120

#: Codes that a response about records must not have, and their replacements. Some clients give up on a batch or
#: a partition when they see a code that Kafka does not use there; they retry after its replacement.
_IN_PLACE: Final = {
    ThrottlingQuotaExceededError.code: KafkaStorageError.code,
    InvalidTxnStateError.code: TRANSACTION_ABORTABLE,
}


class _Refusable(Protocol):
    """A message that has an error code."""

    error_code: Any


def code_of(error: KafkaError | None) -> int:
    """Return the error's code; 0 without an error."""
    return NONE if error is None else error.code


def message_of(result: Any) -> str | None:
    """Return the error message of a result of the node's; None if it has none."""
    return result.error_message if result.HasField("error_message") else None


def text_of(error: KafkaError | None) -> str | None:
    """Return the error's message; None without an error."""
    return None if error is None else error.message


def raise_refusal(response: Any) -> None:
    """Raise the error that a response of the node's has as a whole, if any (KL-40)."""
    error = error_for(response.error_code, message_of(response))
    if error is not None:
        raise error


def record_code(code: int, *, by_name: bool) -> int:
    """Return the code for a partition in an answer about records (KL-40, KL-41). `by_name`: whether the request names
    its topics: then a topic that was deleted meanwhile is an unknown name, not an unknown id."""
    if by_name and code == UnknownTopicIdError.code:
        return UnknownTopicOrPartitionError.code
    return _IN_PLACE.get(code, code)
