"""The fake cluster's transactions: the product's own rules for their records, without markers or a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kip932.api.v1.end_txn_pb2 import EndTxnResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.errors import KafkaError, KafkaStorageError
from kip932.ids import TopicIdPartition
from transaction_coordinator.core.transaction import (
    Cause,
    Identity,
    Transaction,
    ended,
    expired,
    finished,
    following,
    initialised,
    joined,
)
from transaction_coordinator.records import Page, ReadRecord


class FakeTransactions:
    """`ended`: each transaction that ended, and whether it was committed. `unfinished`: if set, markers are not
    written, so the next identity stays unknown."""

    def __init__(self) -> None:
        self.records: dict[str, Transaction] = {}
        self.ended: list[tuple[Identity, bool]] = []
        self.unfinished = False
        self.unreadable: dict[str, KafkaStorageError] = {}
        self.now_ms = 0

    def begin(self, request: InitProducerIdRequest, new_id: int) -> InitProducerIdResponse:
        """Handle InitProducerId with a transactional id."""
        asked = Identity(request.producer_id, request.producer_epoch) if request.producer_id > 0 else None

        def decide(known: Transaction | None) -> Transaction:
            return initialised(known, asked, request.transaction_timeout_ms, new_id)

        try:
            found = self._changed(request.transactional_id, decide)
            if found.decided:
                self._finish(request.transactional_id)
                found = self._changed(request.transactional_id, decide)
        except KafkaError as error:
            code = ErrorCode.ValueType(error.code)
            return InitProducerIdResponse(
                error_code=code, producer_id=-1, producer_epoch=-1, error_message=error.message
            )
        return InitProducerIdResponse(producer_id=found.identity.producer_id, producer_epoch=found.identity.epoch)

    def join(self, transactional_id: str, batch: Any, partition: TopicIdPartition) -> int:
        """Add the partition of a batch that is about to be stored; return an error code."""
        identity = Identity(batch.producer_id, batch.producer_epoch)
        try:
            self._changed(transactional_id, lambda known: joined(known, identity, [partition], self.now_ms))
        except KafkaError as error:
            return error.code
        return 0

    def end(self, request: Any) -> EndTxnResponse:
        """Handle EndTxn."""
        identity = Identity(request.producer_id, request.producer_epoch)
        named = [TopicIdPartition(topic.topic_id, n) for topic in request.topics for n in topic.partition_indexes]
        before = self.records.get(request.transactional_id)
        try:
            cause = Cause.OPERATOR if request.by_operator else Cause.PRODUCER
            found = self._changed(
                request.transactional_id,
                lambda known: ended(known, identity, named, commit=request.committed, cause=cause),
            )
        except KafkaError as error:
            code = ErrorCode.ValueType(error.code)
            return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1, error_message=error.message)
        if found is not before:
            self.ended.append((identity, request.committed))
        if self.unfinished:
            return EndTxnResponse(producer_id=-1, producer_epoch=-1)
        producer_id, epoch = following(self._finish(request.transactional_id), identity) or (-1, -1)
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

    async def read(self, transactional_id: str) -> ReadRecord:
        """Return one record."""
        return ReadRecord(self.records.get(transactional_id), self.now_ms)

    async def page(self, cursor: str) -> Page:
        """Return a page of two records, unreadable ones first."""
        known: dict[str, Transaction | KafkaStorageError] = {**self.unreadable, **self.records}
        at = int(cursor or 0)
        names = list(known)[at : at + 2]
        rest = str(at + 2) if at + 2 < len(known) else ""
        return Page({name: known[name] for name in names}, rest, self.now_ms)

    def time_out(self, transactional_id: str) -> None:
        """Let the open transaction exceed its time-out, and end it as a sweep does."""
        known = self.records[transactional_id]
        late_ms = known.started_ms + known.timeout_ms
        self._changed(transactional_id, lambda found: expired(found, late_ms))
        self._finish(transactional_id)

    def forget_partitions(self, transactional_id: str) -> None:
        """Forget the partitions of a transaction, although the store had confirmed them."""
        self.records[transactional_id] = self.records[transactional_id]._replace(partitions=())

    def _finish(self, transactional_id: str) -> Transaction:
        known = self.records[transactional_id]
        return self._changed(transactional_id, lambda _: finished(known, known.identity, 0))

    def _changed(
        self, transactional_id: str, decide: Callable[[Transaction | None], Transaction | None]
    ) -> Transaction:
        made = decide(self.records.get(transactional_id))
        assert made is not None
        self.records[transactional_id] = made
        return made
