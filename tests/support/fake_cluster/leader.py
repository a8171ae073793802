"""The fake cluster's partition leader: Produce, plain Fetch, ListOffsets, DeleteRecords, DescribeLogDirs; sessions are
in `share`."""

from __future__ import annotations

from typing import Any, Final

from kip932.api.v1 import (
    delete_records_pb2,
    describe_log_dirs_pb2,
    explain_record_pb2,
    fetch_pb2,
    list_offsets_pb2,
    list_share_progress_pb2,
    produce_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from shard_runtime.rpc.binding import ServerStream
from tests.support.fake_cluster.faults import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from tests.support.fake_cluster.log import (
    INVALID_RECORD,
    OFFSET_OUT_OF_RANGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    reads_format,
)
from tests.support.fake_cluster.progress import progress
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

    async def list_offsets(self, request: Any, context: Any) -> list_offsets_pb2.ListOffsetsResponse:
        response = list_offsets_pb2.ListOffsetsResponse()
        for topic in request.topics:
            found = response.topics.add(topic_id=topic.topic_id).partitions
            for part in topic.partitions:
                log = self.fake.logs[TopicIdPartition(topic.topic_id, part.partition_index)]
                error = self.fake.take_error("list_offsets")
                offset = -1 if error else log.offset_for(part.timestamp)
                found.add(partition_index=part.partition_index, offset=offset, error_code=error)
        return response

    async def fetch(self, request: Any, context: Any) -> fetch_pb2.FetchResponse:
        """Answer at once, whether or not there are records."""
        response = fetch_pb2.FetchResponse()
        for topic in request.topics:
            found = response.responses.add(topic_id=topic.topic_id).partitions
            for asked in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, asked.partition)
                part = found.add(partition_index=asked.partition)
                error = self.fake.take_error("fetch") or self.trouble(partition, part, response)
                log = self.fake.logs[partition]
                if not error and not log.first <= asked.fetch_offset <= log.end:
                    error = OFFSET_OUT_OF_RANGE
                part.error_code = ErrorCode.ValueType(error)
                part.high_watermark, part.log_start_offset = (-1, -1) if error else (log.end, log.first)
                part.last_stable_offset = part.high_watermark
                if error:
                    continue
                for batch in log.read(asked.fetch_offset, min(asked.partition_max_bytes, request.max_bytes)):
                    if not reads_format(request, batch):
                        part.error_code = ErrorCode.ValueType(0 if part.records else UNSUPPORTED_COMPRESSION_TYPE)
                        break
                    part.records.append(batch)
        return response

    async def describe_log_dirs(self, request: Any, context: Any) -> describe_log_dirs_pb2.DescribeLogDirsResponse:
        """Answer for the partitions that this node leads, all in the store node `store`; a test sets its memory."""
        fake = self.fake
        response = describe_log_dirs_pb2.DescribeLogDirsResponse()
        if text := fake.denial("DESCRIBE", "cluster", "kafka-cluster"):
            fake.refuse(response, CLUSTER_AUTHORIZATION_FAILED, text)
            return response
        used, limit = fake.store_memory
        left = max(limit - used, 0) if limit else -1
        result = response.results.add(log_dir="store", total_bytes=limit or -1, usable_bytes=left, used_bytes=used)
        wanted = [topic.topic for topic in request.topics.values] if request.HasField("topics") else list(fake.topics)
        for name in wanted:
            topic_id, count = fake.topics.get(name, (b"", 0))
            led = [
                number for number in range(count) if fake.leaders[TopicIdPartition(topic_id, number)][0] == self.node
            ]
            if not led or fake.denial("DESCRIBE", "topic", name):
                continue
            topic = result.topics.add(name=name)
            for number in led:
                size, records, oldest_ms = fake.logs[TopicIdPartition(topic_id, number)].measured()
                topic.partitions.add(
                    partition_index=number, partition_size=size, record_count=records, oldest_append_time_ms=oldest_ms
                )
        return response

    async def explain_record(self, request: Any, context: Any) -> explain_record_pb2.ExplainRecordResponse:
        """Return the response that a test has set or, without one, the reasons of the records: only the real services
        can explain them."""
        self.fake.questions.append(request)
        partition = TopicIdPartition(request.topic_id, request.partition_index)
        response = explain_record_pb2.ExplainRecordResponse()
        error = self.fake.take_error("explain_record") or self.trouble(partition, response, response)
        if error:
            response.error_code = ErrorCode.ValueType(error)
            return response
        if partition in self.fake.explained:
            return self.fake.explained[partition]
        log = self.fake.logs[partition]
        last = request.last_offset if request.HasField("last_offset") else request.offset
        for offset in range(request.offset, last + 1):
            count, reason = log.reasons[request.group_id].get(offset, (0, ""))
            known = offset >= log.start(request.group_id)
            response.records.add(
                first_offset=offset,
                last_offset=offset,
                reason=reason if known else "",
                reason_delivery_count=count if known else 0,
            )
        return response

    async def list_share_progress(
        self, request: list_share_progress_pb2.ListShareProgressRequest, context: Any
    ) -> list_share_progress_pb2.ListShareProgressResponse:
        found: list_share_progress_pb2.ListShareProgressResponse = progress(self.fake, self.node, request)
        return found

    async def produce_stream(self, stream: ServerStream) -> None:
        try:
            await self.fake.opened(self.node, stream, produce_pb2.ProduceStreamResponse(move=True))
            await self._serve_stream(stream)
        finally:
            self.fake.open_streams[self.node].pop(stream, None)

    async def _serve_stream(self, stream: ServerStream) -> None:
        while (message := await stream.read()) is not None:
            if self.fake.hold_produce is not None:
                await self.fake.hold_produce.wait()
            if self.fake.take_error("produce_stream"):
                return  # the stream ends without a response
            self.fake.traceparents.append(message.traceparent)
            response = self._produce(message.request)
            if self.fake.take_error("produce_lost"):
                return  # appended, and the response is lost
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
                if text := self.fake.denial("WRITE", "topic", self.name_of(topic.topic_id)):
                    outcome.error_code = ErrorCode.ValueType(TOPIC_AUTHORIZATION_FAILED)
                    outcome.error_message = text
                    continue
                error = self.fake.take_error("produce") or self.fake.unloadable.get(partition, 0)
                error = error or self._refusal(request) or self.trouble(partition, outcome, response)
                outcome.error_code = ErrorCode.ValueType(
                    error or self._store(partition, part, outcome, request.transactional_id)
                )
        self.fake.notify()
        return response

    def _refusal(self, request: produce_pb2.ProduceRequest) -> int:
        if request.acks not in (-1, 1):
            return INVALID_REQUIRED_ACKS
        return 0

    def _store(self, partition: TopicIdPartition, part: Any, outcome: Any, transactional_id: str) -> int:
        if not part.batches:
            return INVALID_RECORD
        for batch in part.batches:
            if batch.is_transactional is not bool(transactional_id):
                return INVALID_RECORD
            if transactional_id and (refused := self.fake.transactions.join(transactional_id, batch, partition)):
                return refused
            error, base = self.fake.logs[partition].produce(batch)
            if error:
                return error
            outcome.base_offsets.append(base)
        outcome.base_offset = outcome.base_offsets[0]
        return 0
