"""The fake cluster's partition leader: what Produce, ShareFetch and ShareAcknowledge have in common, and Produce."""

from __future__ import annotations

from typing import Any, Final

from kip932.api.v1 import delete_records_pb2, produce_pb2
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from shard_runtime.rpc.binding import ServerStream
from tests.support.fake_cluster.log import INVALID_RECORD, INVALID_REQUEST
from tests.support.fake_cluster.share import ShareRequests

INVALID_REQUIRED_ACKS: Final = 21


class Leader(ShareRequests):
    """Every RPC of a partition leader that the fake serves."""

    async def produce(self, request: produce_pb2.ProduceRequest, context: Any) -> produce_pb2.ProduceResponse:
        return self._produce(request)

    async def delete_records(self, request: Any, context: Any) -> delete_records_pb2.DeleteRecordsResponse:
        response = delete_records_pb2.DeleteRecordsResponse()
        for topic in request.topics:
            found = response.topics.add(topic_id=topic.topic_id).partitions
            for part in topic.partitions:
                log = self.fake.logs[TopicIdPartition(topic.topic_id, part.partition_index)]
                error, first = log.delete_before(part.offset)
                code = ErrorCode.ValueType(error)
                found.add(partition_index=part.partition_index, low_watermark=first, error_code=code)
        return response

    async def produce_stream(self, stream: ServerStream) -> None:
        while (message := await stream.read()) is not None:
            if self.fake.hold_produce is not None:
                await self.fake.hold_produce.wait()
            if self.fake.take_error("produce_stream"):
                return  # the stream ends without an answer
            response = self._produce(message.request)
            if self.fake.take_error("produce_lost"):
                return  # appended, and the answer is lost
            await stream.write(
                produce_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, response=response)
            )

    def _produce(self, request: produce_pb2.ProduceRequest) -> produce_pb2.ProduceResponse:
        self.fake.produces.append(request)
        response = produce_pb2.ProduceResponse()
        for topic in request.topic_data:
            result = response.responses.add(topic_id=topic.topic_id)
            for part in topic.partition_data:
                partition = TopicIdPartition(topic.topic_id, part.index)
                outcome = result.partition_responses.add(index=part.index, base_offset=-1)
                error = self.fake.take_error("produce") or self.fake.unloadable.get(partition, 0)
                error = error or self._refusal(request) or self.trouble(partition, outcome, response)
                outcome.error_code = ErrorCode.ValueType(error or self._store(partition, part, outcome))
        self.fake.notify()
        return response

    def _refusal(self, request: produce_pb2.ProduceRequest) -> int:
        if request.acks not in (-1, 1):
            return INVALID_REQUIRED_ACKS
        return INVALID_REQUEST if request.HasField("transactional_id") else 0

    def _store(self, partition: TopicIdPartition, part: Any, outcome: Any) -> int:
        if not part.batches:
            return INVALID_RECORD
        for batch in part.batches:
            error, base = self.fake.logs[partition].produce(batch)
            if error:
                return error
            outcome.base_offsets.append(base)
        outcome.base_offset = outcome.base_offsets[0]
        return 0
