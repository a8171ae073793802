"""The questions about `PartitionLeaderService`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kip932.acls import Operation as Op
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from tests.integration.scenarios.sessions import ACCEPT, Session, acquired
from tests.scenarios.access.ask import PASSED, Ask, C, Clause, G, Right, Shown, T, X, first_error, need
from tests.scenarios.access.asks_cluster import _Transactional, new
from tests.scenarios.access.stage import GROUP, TOPIC, TRANSACTION, Caller, Stage

_RECORDS = 3
_LEFT_OUT = Shown("left out", "rows")
_LEFT_OUT_G = Clause((Right(Op.DESCRIBE, G),), _LEFT_OUT)
_LEFT_OUT_T = Clause((Right(Op.DESCRIBE, T),), _LEFT_OUT)


class Produce(Ask):
    rpc = "Produce"
    clauses = (need(Op.WRITE, T, "TAF", "responses.partition_responses"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Produce", acks=-1, timeout_ms=10_000)
        data = RecordBatch(records=[Record(value=b"v")]).SerializeToString()
        part = request.topic_data.add(topic_id=stage.topic_id).partition_data.add(index=0)
        part.batches.add(record_batch=data, record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1)
        return request


class ProduceInTransaction(_Transactional):
    rpc = "Produce"
    clauses = (
        need(Op.WRITE, X, "XAF", "responses.partition_responses"),
        need(Op.WRITE, T, "TAF", "responses.partition_responses"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._sequence = 1  # the transaction has one record

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Produce", acks=-1, timeout_ms=10_000, transactional_id=TRANSACTION)
        data = RecordBatch(records=[Record(value=b"v")]).SerializeToString()
        part = request.topic_data.add(topic_id=stage.topic_id).partition_data.add(index=0)
        part.batches.add(
            record_batch=data,
            record_count=1,
            producer_id=self.writer.producer_id,
            producer_epoch=self.writer.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        return request

    async def after(self, stage: Stage, number: int) -> None:
        self._sequence += 1


class _InStream(Ask):
    """A question whose request travels in a stream."""

    inner: type[Ask]
    field = ""

    def __init__(self) -> None:
        self._inner = self.inner()

    async def prepare(self, stage: Stage) -> None:
        await self._inner.prepare(stage)

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        await self._inner.before(stage, caller, number)

    async def request(self, stage: Stage, number: int) -> Any:
        return new(self.rpc, correlation_id=7, **{self.field: await self._inner.request(stage, number)})

    def shown(self, answer: Any) -> Shown:
        assert answer.correlation_id == 7
        return self._inner.shown(getattr(answer, "response" if self.rpc == "ProduceStream" else self.field))

    async def after(self, stage: Stage, number: int) -> None:
        await self._inner.after(stage, number)


class ProduceStream(_InStream):
    rpc = "ProduceStream"
    clauses = Produce.clauses
    inner, field = Produce, "request"


class ProduceStreamInTransaction(_InStream):
    rpc = "ProduceStream"
    clauses = ProduceInTransaction.clauses
    inner, field = ProduceInTransaction, "request"


class _Recorded(Ask):
    """Requests about a topic with records."""

    async def prepare(self, stage: Stage) -> None:
        await stage.admin.produce(stage.topic_id, _RECORDS)


class Fetch(_Recorded):
    rpc = "Fetch"
    clauses = (need(Op.READ, T, "TAF", "responses.partitions"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("Fetch", max_wait_ms=100, min_bytes=1, max_bytes=1 << 20)
        request.topics.add(topic_id=stage.topic_id).partitions.add(
            partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20
        )
        return request

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        assert bool(answer.responses[0].partitions[0].records) == (found == PASSED), answer
        return found


class ListOffsets(_Recorded):
    rpc = "ListOffsets"
    clauses: ClassVar[tuple[Clause, ...]] = (need(Op.DESCRIBE, T, "TAF", "topics.partitions"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("ListOffsets")
        request.topics.add(topic_id=stage.topic_id).partitions.add(
            partition_index=0, current_leader_epoch=-1, timestamp=-1
        )
        return request

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        assert answer.topics[0].partitions[0].offset == (_RECORDS if found == PASSED else -1), answer
        return found


class ListProgress(ListOffsets):
    clauses = (
        need(Op.DESCRIBE, G, "GAF", "topics.partitions"),  # GC-149: groups first
        need(Op.DESCRIBE, T, "TAF", "topics.partitions"),
    )

    async def request(self, stage: Stage, number: int) -> Any:
        request: Any = await super().request(stage, number)
        request.topics[0].partitions[0].share_group_id = GROUP
        return request


class DeleteRecords(_Recorded):
    rpc = "DeleteRecords"
    clauses = (need(Op.DELETE, T, "TAF", "topics.partitions"),)

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteRecords", timeout_ms=10_000)
        request.topics.add(topic_id=stage.topic_id).partitions.add(partition_index=0, offset=1)
        return request


class ExplainRecord(_Recorded):
    rpc = "ExplainRecord"
    clauses = (need(Op.DESCRIBE, G, "GAF"), need(Op.DESCRIBE, T, "TAF"))

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ExplainRecord", group_id=GROUP, topic_id=stage.topic_id, partition_index=0, offset=1)


class DescribeLogDirs(_Recorded):
    rpc = "DescribeLogDirs"
    clauses = (need(Op.DESCRIBE, C, "CAF"), need(Op.DESCRIBE, T, "left out", "results.topics"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DescribeLogDirs")
        request.topics.values.add(topic=TOPIC)
        return request

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        listed = [topic.name for result in answer.results for topic in result.topics]
        assert listed in ([], [TOPIC]), answer
        return Shown("left out", "results.topics") if found == PASSED and not listed else found


class ListShareProgress(_Recorded):
    rpc = "ListShareProgress"
    clauses = (_LEFT_OUT_G, _LEFT_OUT_T)

    async def prepare(self, stage: Stage) -> None:
        await super().prepare(stage)
        session = Session(stage.admin, GROUP, "loads", stage.topic_id)
        await session.fetch()

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ListShareProgress", group_ids=[GROUP])

    def shown(self, answer: Any) -> Shown:
        assert not answer.error_code, answer
        assert answer.total == len(answer.rows), answer
        return PASSED if [row.group_id for row in answer.rows] == [GROUP] else Shown("left out", "rows")


class _InSession(Ask):
    """Requests on a share session that its caller has opened, and which holds one record."""

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.held: dict[int, int] = {}

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        await stage.admin.produce(stage.topic_id, 1)
        session = self.sessions[number] = Session(caller, GROUP, f"m{number}", stage.topic_id)
        ((self.held[number], _, _),) = acquired(await session.fetch(max_records=1, batch_size=1))

    def acknowledging(self, name: str, number: int, **fields: Any) -> Any:
        """Return a request on the caller's session that accepts the record that it holds."""
        session = self.sessions[number]
        request = new(
            name,
            group_id=GROUP,
            member_id=session.member,
            share_session_epoch=session.epoch,
            session_id=session.session_id,
            **fields,
        )
        part = request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0)
        part.acknowledgement_batches.add(
            first_offset=self.held[number], last_offset=self.held[number], acknowledge_types=[ACCEPT]
        )
        return request

    def closing(self, name: str, number: int) -> Any:
        """Return a request that closes the caller's session."""
        session = self.sessions[number]
        return new(
            name,
            group_id=GROUP,
            member_id=session.member,
            share_session_epoch=-1,
            session_id=session.session_id,
        )


class OpenSession(_Recorded):
    rpc = "ShareFetch"
    clauses = (need(Op.READ, G, "GAF"), need(Op.READ, T, "TAF", "responses.partitions"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("ShareFetch", group_id=GROUP, member_id=f"m{number}", share_session_epoch=0, max_wait_ms=0)
        request.min_bytes, request.max_bytes, request.max_records, request.batch_size = 1, 1 << 20, 500, 500
        request.topics.add(topic_id=stage.topic_id).partitions.add(partition_index=0)
        return request


class FetchOn(_InSession):
    rpc = "ShareFetch"
    clauses = (need(Op.READ, G, "GAF"), need(Op.READ, T, "TAF", "responses.partitions"))

    async def request(self, stage: Stage, number: int) -> Any:
        limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        return self.acknowledging("ShareFetch", number, **limits)

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        if found.what == "TAF":  # the acknowledgements are refused, too
            (part,) = answer.responses[0].partitions
            assert part.acknowledge_error_code == part.error_code, answer
        return found


class CloseByFetch(_InSession):
    rpc = "ShareFetch"
    clauses = ()  # PL-531 (c): no permission

    async def request(self, stage: Stage, number: int) -> Any:
        return self.closing("ShareFetch", number)


class FetchUnknown(_Recorded):
    rpc = "ShareFetch"
    clauses = (need(Op.READ, G, "GAF"),)
    passed = Shown("SHARE_SESSION_NOT_FOUND")

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("ShareFetch", group_id=GROUP, member_id="unknown", share_session_epoch=5, max_bytes=1 << 20)
        request.max_records, request.batch_size = 500, 500
        request.topics.add(topic_id=stage.topic_id).partitions.add(partition_index=0)
        return request


class Acknowledge(_InSession):
    rpc = "ShareAcknowledge"
    clauses = (need(Op.READ, G, "GAF"), need(Op.READ, T, "TAF", "responses.partitions"))

    async def request(self, stage: Stage, number: int) -> Any:
        return self.acknowledging("ShareAcknowledge", number)


class CloseByAcknowledge(_InSession):
    rpc = "ShareAcknowledge"
    clauses = ()  # PL-531 (c): no permission

    async def request(self, stage: Stage, number: int) -> Any:
        return self.closing("ShareAcknowledge", number)


class StreamOpen(_InStream):
    rpc = "ShareStream"
    clauses = OpenSession.clauses
    inner, field = OpenSession, "fetch"


class StreamAcknowledge(_InStream):
    rpc = "ShareStream"
    clauses = Acknowledge.clauses
    inner, field = Acknowledge, "acknowledge"


#: The questions by name.
QUESTIONS: Final[dict[str, type[Ask]]] = {
    "Produce": Produce,
    "Produce in a transaction": ProduceInTransaction,
    "ProduceStream": ProduceStream,
    "ProduceStream in a transaction": ProduceStreamInTransaction,
    "Fetch": Fetch,
    "ListOffsets": ListOffsets,
    "ListOffsets with a group's progress": ListProgress,
    "DeleteRecords": DeleteRecords,
    "ExplainRecord": ExplainRecord,
    "DescribeLogDirs": DescribeLogDirs,
    "ListShareProgress": ListShareProgress,
    "ShareFetch that opens a session": OpenSession,
    "ShareFetch of an open session, with acknowledgements": FetchOn,
    "ShareFetch that closes a session that its caller has opened": CloseByFetch,
    "ShareFetch of an unknown session": FetchUnknown,
    "ShareAcknowledge": Acknowledge,
    "ShareAcknowledge that closes a session that its caller has opened": CloseByAcknowledge,
    "ShareStream that opens a session": StreamOpen,
    "ShareStream with acknowledgements": StreamAcknowledge,
}
