"""EndTxn of clients that know KIP-890: the answer has the epoch of the producer's next transaction (KL-104, KL-105)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import TRANSACTION_ABORTABLE, raise_refusal
from kafka_listener.requests.transactional_ids import kafka_epoch
from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest
from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.errors import ConcurrentTransactionsError, InvalidTxnStateError, KafkaError, ProducerFencedError

_RESPONSE: Final = api("EndTxn").response
#: The producer id of a response without an error that does not say yet how the producer goes on (CM-154).
_NOT_YET: Final = -1


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Commit or abort the transaction, and answer once the next one may begin."""
    try:
        found = await _ended(node_request(request), connection)
        return _RESPONSE(
            throttle_time_ms=found.throttle_time_ms,
            producer_id=found.producer_id,
            producer_epoch=kafka_epoch(found.producer_epoch),
        )
    except InvalidTxnStateError as error:
        code = TRANSACTION_ABORTABLE if request.committed else error.code
        return _RESPONSE(error_code=code, producer_id=-1, producer_epoch=-1)
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, producer_id=-1, producer_epoch=-1)


def node_request(request: Any) -> EndTxnRequest:
    """Return the node's request. Kafka's clients do not name the partitions that confirmed records."""
    return EndTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
    )


async def _ended(asked: EndTxnRequest, connection: Connection) -> EndTxnResponse:
    """Return the node's response, with the identity for the next transaction. Raises ConcurrentTransactionsError while
    markers are to be written: the client repeats its request; ProducerFencedError when another producer has started."""
    found = await _call(asked, connection)
    if found.producer_id != _NOT_YET:
        return found
    if await _is_present(asked, connection):
        raise ConcurrentTransactionsError(
            "the transaction is decided, but not all of its partitions have their markers"
        )
    found = await _call(asked, connection)  # the last markers may have been written after the first call
    if found.producer_id == _NOT_YET:
        raise ProducerFencedError("another producer began with the same transactional id")
    return found


async def _call(asked: EndTxnRequest, connection: Connection) -> EndTxnResponse:
    found: EndTxnResponse = await connection.call("end_txn", asked)
    raise_refusal(found)
    return found


async def _is_present(asked: EndTxnRequest, connection: Connection) -> bool:
    """Return whether the record still has the transaction that was ended, so that markers are missing."""
    response = await connection.call(
        "describe_transactions", DescribeTransactionsRequest(transactional_ids=[asked.transactional_id])
    )
    (state,) = response.transaction_states
    raise_refusal(state)
    return (state.producer_id, state.producer_epoch) == (asked.producer_id, asked.producer_epoch)
