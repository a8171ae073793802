"""InitProducerId: producer ids of idempotent producers, and of transactional ones that know KIP-890 (KL-47, KL-102)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import raise_refusal
from kafka_listener.requests.transactional_ids import kafka_epoch, refusal
from kip932.acls import Operation
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.errors import KafkaError, TransactionalIdAuthorizationFailedError

_RESPONSE: Final = api("InitProducerId").response
#: Clients that know KIP-890 send this version, or a later one.
_KIP_890: Final = 5
_IDENTITY_FROM: Final = 3
_TWO_PHASES_FROM: Final = 6


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with a producer id, and for a transactional id with the epoch of its next transaction."""
    try:
        _check(request, version, connection)
        found = await connection.call("init_producer_id", node_request(request, version))
        return response_of(found)
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, producer_id=-1, producer_epoch=-1)


def _check(request: Any, version: int, connection: Connection) -> None:
    if request.transactional_id is None:
        return
    refused = refusal(connection, request.transactional_id, Operation.WRITE, known=version >= _KIP_890)
    if refused is not None:
        raise refused
    if version >= _TWO_PHASES_FROM and (request.enable2_pc or request.keep_prepared_txn):
        raise TransactionalIdAuthorizationFailedError(
            "transactions in two phases are not served; leave out transaction.two.phase.commit.enable"
        )


def node_request(request: Any, version: int) -> InitProducerIdRequest:
    """Return the node's request."""
    asked = InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout_ms=request.transaction_timeout_ms,
        producer_id=-1,
    )
    if version >= _IDENTITY_FROM:
        asked.producer_id, asked.producer_epoch = request.producer_id, request.producer_epoch
    return asked


def response_of(found: InitProducerIdResponse) -> Any:
    """Return the answer. Raises the error that the node's response has, if any."""
    raise_refusal(found)
    return _RESPONSE(
        throttle_time_ms=found.throttle_time_ms,
        producer_id=found.producer_id,
        producer_epoch=kafka_epoch(found.producer_epoch),
    )
