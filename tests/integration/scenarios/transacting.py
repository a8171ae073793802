"""A transactional producer whose RPCs are made one by one, so that a test knows every offset."""

from __future__ import annotations

from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique


class Writer:
    """A producer with its own transactional id. `markers`: the known offsets of markers in partition 0."""

    def __init__(self, wire: Wire, topic_id: bytes, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.topic_id = topic_id
        self.transactional_id = unique("tx")
        self.producer_id = self.epoch = -1
        self._timeout_ms = timeout_ms
        self._sequences: dict[int, int] = {}

    async def begin(self) -> None:
        """Start as a new producer instance."""
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer: InitProducerIdResponse = await self.wire.call("InitProducerId", asked)
        assert not answer.error_code, answer.error_message
        self._became(answer.producer_id, answer.producer_epoch)

    async def write(self, count: int, partition: int = 0, address: str | None = None) -> int:
        """Write records of the open transaction in one batch; returns the first offset."""
        if self.producer_id < 0:
            await self.begin()
        async for _ in attempts():
            code, base = await self.produce(count, partition, address)
            if not code:
                self._sequences[partition] = self._sequences.get(partition, 0) + count
                return base
        raise AssertionError(f"the batch was refused with {code}")

    async def produce(self, count: int, partition: int = 0, address: str | None = None) -> tuple[int, int]:
        """Try to write once; returns the error code and the first offset."""
        request = ProduceRequest(acks=-1, timeout_ms=10_000, transactional_id=self.transactional_id)
        data = RecordBatch(records=[Record(value=b"tx-%d" % number) for number in range(count)])
        part = request.topic_data.add(topic_id=self.topic_id).partition_data.add(index=partition)
        part.batches.add(
            record_batch=data.SerializeToString(),
            record_count=count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(partition, 0),
            is_transactional=True,
        )
        answer = await self.wire.call("Produce", request, address)
        found = answer.responses[0].partition_responses[0]
        return int(found.error_code), int(found.base_offset)

    async def end(self, commit: bool) -> EndTxnResponse:
        """Commit or abort, and wait until every partition has its marker."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        asked.topics.add(topic_id=self.topic_id, partition_indexes=list(self._sequences))
        async for _ in attempts():
            answer: EndTxnResponse = await self.wire.call("EndTxn", asked)
            if answer.error_code or answer.producer_id > 0:
                break
        if not answer.error_code:
            self._became(answer.producer_id, answer.producer_epoch)
        return answer

    async def transact(self, count: int, *, commit: bool, partition: int = 0) -> int:
        """Run a whole transaction; returns its first offset."""
        base = await self.write(count, partition)
        answer = await self.end(commit)
        assert not answer.error_code, answer.error_message
        return base

    def _became(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()
