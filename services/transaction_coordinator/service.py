"""The RPCs that change transactions: InitProducerId with a transactional id, EndTxn. Messages in, messages out."""

from __future__ import annotations

from typing import Final

from kip932.acls import ResourceType
from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from kip932.errors import InvalidRequestError, KafkaError
from kip932.ids import TopicIdPartition
from shard_runtime.cluster.lookups import checked_topic_id
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import check_partitions
from transaction_coordinator.coordinator import TransactionCoordinator
from transaction_coordinator.core.transaction import Cause, Identity
from transaction_coordinator.read_service import Surroundings, TransactionReads, checked_id

_NONE: Final = -1


class TransactionService(TransactionReads):
    """The `Transactional` handlers of the cluster service, on any node."""

    def __init__(self, coordinator: TransactionCoordinator, surroundings: Surroundings) -> None:
        super().__init__(coordinator, surroundings)
        self._coordinator = coordinator

    async def begin(self, request: InitProducerIdRequest) -> tuple[int, int]:
        """Return (producer id, epoch) for the producer's next transaction. Raises KafkaError."""
        return await self._coordinator.begin(
            checked_id(request.transactional_id), _asked(request), request.transaction_timeout_ms
        )

    async def end_txn(self, request: EndTxnRequest, context: CallContext) -> EndTxnResponse:
        """Commit or abort a transaction. Raises InvalidRequestError for a bad topic id, or too many partitions."""
        check_partitions((request.topics, "partition_indexes"))
        partitions = [
            TopicIdPartition(checked_topic_id(topic.topic_id), index)
            for topic in request.topics
            for index in topic.partition_indexes
        ]
        try:
            context.require(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            if request.by_operator and request.committed:
                raise InvalidRequestError("an operator can abort a transaction, not commit it")
            following = await self._coordinator.end(
                checked_id(request.transactional_id),
                Identity(request.producer_id, request.producer_epoch),
                partitions,
                commit=request.committed,
                cause=Cause.OPERATOR if request.by_operator else Cause.PRODUCER,
            )
        except KafkaError as error:
            return EndTxnResponse(
                error_code=ErrorCode.ValueType(error.code),
                producer_id=_NONE,
                producer_epoch=_NONE,
                error_message=error.message,
            )
        producer_id, epoch = following or (_NONE, _NONE)
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def _asked(request: InitProducerIdRequest) -> Identity | None:
    """The identity given by an instance that wants to continue; None for a new instance, which sends −1, or neither
    field."""
    if request.producer_id in {0, _NONE}:  # no producer has the id 0 (CM-43a)
        return None
    return Identity(request.producer_id, request.producer_epoch)
