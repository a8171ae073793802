"""Which of Kafka's clients may use transactions: those that end each with an epoch of its own (KL-100 … KL-103).

In Kafka's older protocol a producer has one epoch for many transactions. Here, as in Kafka since KIP-890, each has its
own (CM-152), so that a request about a transaction cannot be taken for one about another. A client that knows KIP-890
shows by the versions of its requests that it does.

Others are refused with the one code that makes librdkafka and Java's client fail at once; with others they try again
until they time out. Both show the words of FindCoordinator's answer, which they ask for first; the answer to
InitProducerId has no room for any, so the node logs them.
"""

from __future__ import annotations

from typing import Final

from kafka_listener.ports import Connection
from kip932.acls import Operation, ResourceType
from kip932.errors import ClusterAuthorizationFailedError, InvalidRequestError, KafkaError, UnknownServerError
from kip932.printable import printable

_SHOWN_MAX: Final = 100
#: The largest epoch that Kafka's messages have room for.
_EPOCH_MAX: Final = 2**15 - 1
_REMEDY: Final = (
    "use a client with the transactions of KIP-890, such as Java's from 4.0 on, or those of sharegroups' own producer; "
    "without transactions, leave out transactional.id and keep enable.idempotence"
)


def refusal(connection: Connection, name: str, operation: Operation, *, known: bool) -> KafkaError | None:
    """Return why a transactional id gets no coordinator and no producer id; None if it does. A caller that may not do
    `operation` to it gets the error of that. `known`: whether the request is of a version of clients with KIP-890."""
    refused = connection.context.refusal(ResourceType.TRANSACTIONAL_ID, name, operation)
    if refused is not None:
        return refused
    if not name:
        return InvalidRequestError("the transactional id is empty; leave it out for an idempotent producer")
    if known:
        return None
    shown = printable(name[:_SHOWN_MAX])
    connection.lines.warning(
        "kafka_transactions_refused",
        key=("transactions", connection.context.principal, shown),
        transactional_id=shown,
        client_id=printable(connection.context.client_id[:_SHOWN_MAX]),
        peer=connection.context.peer,
        cause="the client has one epoch for many transactions; this cluster's transactions have one each (KIP-890)",
        remedy=_REMEDY,
    )
    return ClusterAuthorizationFailedError(
        f"this client has one epoch for many transactions, and this cluster needs one for each: {_REMEDY}"
    )


def kafka_epoch(epoch: int) -> int:
    """Return a producer epoch for an answer. Raises UnknownServerError for one that Kafka's messages have no room for:
    only nodes of older versions give such."""
    if epoch > _EPOCH_MAX:
        raise UnknownServerError(
            f"the producer epoch is {epoch}; Kafka's messages have room for {_EPOCH_MAX}: begin again with "
            "initTransactions, once all nodes are of this version"
        )
    return epoch
