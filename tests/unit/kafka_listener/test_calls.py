"""Calls of a connection: the node's handlers, with rights, errors and streams."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

import pytest
from google.protobuf.message import Message

from kafka_listener.calls import STREAMS_MAX, Calls, Served, Streams
from kafka_listener.ports import Making
from kip932.acls import Operation, ResourceType
from kip932.api.v1.cluster_service_pb2 import DESCRIPTOR as CLUSTER
from kip932.api.v1.delete_records_pb2 import DeleteRecordsRequest, DeleteRecordsResponse
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.api.v1.partition_leader_service_pb2 import DESCRIPTOR as LEADER
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse, ProduceStreamResponse
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamResponse
from kip932.errors import (
    InvalidRequestError,
    NetworkError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from kip932.ids import ACK_ACCEPT, ACK_RELEASE, ACK_RENEW
from shard_runtime.call_ids import begin_call
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import PASSWORD, UNKNOWN, Identity
from shard_runtime.rpc.binding import CallContext, bind
from shard_runtime.rpc.budget import Budget
from shard_runtime.rpc.gate import Caller, Gate, OpenCalls
from shard_runtime.rpc.status import invalid_argument

pytestmark = pytest.mark.asyncio

ALICE = Identity("User:alice", PASSWORD)
_Request = TypeVar("_Request", bound=Message)
FETCHED = ShareFetchResponse(throttle_time_ms=3)


class Lines:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def error(self, event: str, **fields: Any) -> None:
        self.events.append(event)


class Node:
    """The handlers of a node, which the test lets answer."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.streams: list[str] = []
        self.messages: list[Any] = []
        self.go = asyncio.Event()
        self.half_closed = 0

    async def metadata(self, request: MetadataRequest, context: CallContext) -> MetadataResponse:
        if self.error is not None:
            raise self.error
        context.require(ResourceType.TOPIC, "jobs")
        return MetadataResponse(cluster_id=context.client_id)

    async def delete_records(self, request: DeleteRecordsRequest, context: CallContext) -> DeleteRecordsResponse:
        context.require(ResourceType.TOPIC, "jobs")
        return DeleteRecordsResponse()

    async def produce_stream(self, stream: Any) -> None:
        self.streams.append("produce begins")
        try:
            while (message := await stream.read()) is not None:
                self.messages.append((message.request.timeout_ms, stream.context.message_bytes))
                await self.go.wait()
                if self.error is not None:
                    raise self.error
                response = ProduceResponse(throttle_time_ms=message.request.timeout_ms)
                await stream.write(ProduceStreamResponse(correlation_id=message.correlation_id, response=response))
            self.half_closed += 1
        finally:
            self.streams.append("produce ends")

    async def share_stream(self, stream: Any) -> None:
        self.streams.append("share begins")
        try:
            while (message := await stream.read()) is not None:
                self.messages.append(message.WhichOneof("request"))
                if self.error is not None:
                    raise self.error
                await stream.write(ShareStreamResponse(correlation_id=message.correlation_id, fetch=FETCHED))
            self.half_closed += 1
        finally:
            self.streams.append("share ends")


def made(request: _Request) -> Making[_Request]:
    """Return what makes this request."""

    async def make() -> _Request:
        return request

    return make


async def fetch(calls: Calls, member: str, epoch: int = 0) -> ShareFetchResponse:
    """Send a ShareFetch of a member of group g."""
    return await calls.share_fetch("g", member, epoch, made(ShareFetchRequest(share_session_epoch=epoch, max_bytes=1)))


async def produce(calls: Calls, timeout_ms: int) -> ProduceResponse | None:
    """Send a Produce whose answer shows its timeout."""
    return await calls.produce(made(ProduceRequest(timeout_ms=timeout_ms)))


class Fixture:
    """A connection of alice to a node."""

    def __init__(self, node: Node, access: Access | None = None) -> None:
        self.lines = Lines()
        unused = cast(Any, None)
        gate = Gate(Budget(1_000_000), unused, unused, OpenCalls(1_000), access=access)
        methods = [
            *bind(CLUSTER.services_by_name["ClusterService"], node),
            *bind(LEADER.services_by_name["PartitionLeaderService"], node),
        ]
        self.gate = gate
        served = Served({each.method.path: each for each in methods}, gate, unused, cast(RateLimitedLog, self.lines))
        self.served = served
        self.writable = asyncio.Event()
        self.writable.set()

        async def until_writable() -> None:
            await self.writable.wait()

        self.streams = Streams(served, until_writable)
        self.calls = Calls(served, Caller("kafka:1", "10.0.0.1", "me", ALICE), self.streams)


@pytest.mark.rule("KL-5")
async def test_a_call_has_the_rights_that_its_rpc_needs() -> None:
    allowed = Fixture(Node(), Access(["User:alice"]))
    assert (await allowed.calls.call("metadata", MetadataRequest())).cluster_id == "me"
    refused = Fixture(Node(), Access())
    with pytest.raises(TopicAuthorizationFailedError, match="DESCRIBE"):
        await refused.calls.call("metadata", MetadataRequest())
    assert refused.calls.context.may(ResourceType.TOPIC, "jobs", Operation.READ) is False


@pytest.mark.rule("KL-5")
async def test_each_call_of_a_connection_has_the_rights_of_its_own_rpc() -> None:
    refused = Fixture(Node(), Access())
    for rpc, request, operation in (
        ("metadata", MetadataRequest(), "DESCRIBE"),
        ("delete_records", DeleteRecordsRequest(), "DELETE"),
        ("metadata", MetadataRequest(), "DESCRIBE"),
    ):
        with pytest.raises(TopicAuthorizationFailedError, match=operation):
            await refused.calls.call(rpc, request)


@pytest.mark.rule("KL-5")
async def test_what_this_node_has_no_role_for_is_refused_as_by_a_wrong_node() -> None:
    fixture = Fixture(Node())
    with pytest.raises(NotCoordinatorError):
        await fixture.calls.call("share_group_heartbeat", MetadataRequest())
    with pytest.raises(NotLeaderOrFollowerError):
        await fixture.calls.call("list_offsets", MetadataRequest())


@pytest.mark.rule("CM-240", "KL-5")
async def test_other_errors_become_kafkas_and_those_for_no_caller_are_logged() -> None:
    node = Node()
    fixture = Fixture(node)
    node.error = invalid_argument("16 bytes expected")
    with pytest.raises(InvalidRequestError, match="16 bytes"):
        await fixture.calls.call("metadata", MetadataRequest())
    assert fixture.lines.events == []
    node.error = ZeroDivisionError()
    begin_call("10.0.0.1:5/7", "me")
    with pytest.raises(UnknownServerError, match=r"ZeroDivisionError; see its log, request 10\.0\.0\.1:5/7"):
        await fixture.calls.call("metadata", MetadataRequest())
    assert fixture.lines.events == ["call_failed"]


@pytest.mark.rule("KL-6")
async def test_records_go_through_one_stream_in_the_order_of_their_calls() -> None:
    node = Node()
    fixture = Fixture(node)
    asked = [asyncio.ensure_future(produce(fixture.calls, number + 1)) for number in range(5)]
    node.go.set()
    assert [answer and answer.throttle_time_ms for answer in await asyncio.gather(*asked)] == [1, 2, 3, 4, 5]
    assert [number for number, _ in node.messages] == [1, 2, 3, 4, 5]
    assert {size for _, size in node.messages} == {ProduceRequest(timeout_ms=1).ByteSize()}
    assert node.streams == ["produce begins"]
    await fixture.streams.end()


@pytest.mark.rule("KL-120")
async def test_requests_that_are_made_in_slices_keep_their_order_also_when_the_connection_is_lost() -> None:
    node = Node()
    node.go.set()
    fixture = Fixture(node)

    async def slowly() -> ProduceRequest:
        for _ in range(50):
            await asyncio.sleep(0)
        return ProduceRequest(timeout_ms=1)

    asked = [asyncio.ensure_future(fixture.calls.produce(slowly)), asyncio.ensure_future(produce(fixture.calls, 2))]
    await asyncio.sleep(0)
    for each in asked:
        each.cancel()
    await fixture.streams.end()
    assert [number for number, _ in node.messages] == [1, 2]


@pytest.mark.rule("KL-6")
async def test_a_request_that_cannot_be_made_fails_alone_and_one_of_nothing_is_not_sent() -> None:
    node = Node()
    node.go.set()
    fixture = Fixture(node)

    async def refused() -> ProduceRequest:
        raise InvalidRequestError("too many")

    async def nothing() -> None:
        return None

    asked = [fixture.calls.produce(refused), fixture.calls.produce(nothing), produce(fixture.calls, 3)]
    first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, InvalidRequestError)
    assert second is None
    assert isinstance(third, ProduceResponse)
    assert [number for number, _ in node.messages] == [3]
    assert node.streams == ["produce begins"]
    await fixture.streams.end()


@pytest.mark.rule("KL-6")
async def test_each_member_has_a_stream_which_its_final_request_ends() -> None:
    node = Node()
    fixture = Fixture(node)
    for member in ("m1", "m2", "m1"):
        assert await fetch(fixture.calls, member) == FETCHED
    assert node.streams == ["share begins"] * 2
    await fixture.calls.share_acknowledge("g", "m1", -1, made(ShareAcknowledgeRequest()))
    await asyncio.sleep(0)
    assert (node.streams[2:], node.messages[-1], node.half_closed) == (["share ends"], "acknowledge", 1)
    await fetch(fixture.calls, "m1", -1)
    assert node.streams[3:4] == ["share begins"]
    await fixture.streams.end()


@pytest.mark.rule("KL-6")
async def test_a_final_request_does_not_end_a_session_that_was_opened_right_after_it() -> None:
    node = Node()
    fixture = Fixture(node)
    asked = [asyncio.ensure_future(fetch(fixture.calls, "m", epoch)) for epoch in (-1, 0)]
    await asyncio.gather(*asked)
    await fetch(fixture.calls, "m", 1)
    assert node.streams == ["share begins"]
    await fixture.streams.end()


@pytest.mark.rule("KL-6", "KL-20")
async def test_a_caller_that_becomes_another_has_streams_with_its_own_rights() -> None:
    seen: list[str | None] = []

    class Naming(Node):
        async def share_stream(self, stream: Any) -> None:
            seen.append(stream.context.principal)
            await super().share_stream(stream)

    fixture = Fixture(Naming())
    before = Calls(fixture.served, Caller("kafka:1", "10.0.0.1", "me", UNKNOWN), fixture.streams)
    for calls in (before, fixture.calls, fixture.calls):
        await fetch(calls, "m")
    assert seen == [None, "User:alice"]
    await fixture.streams.end()


@pytest.mark.rule("KL-6")
async def test_the_end_of_the_connection_ends_members_at_once_and_stores_what_came() -> None:
    node = Node()
    fixture = Fixture(node)
    produced = asyncio.ensure_future(produce(fixture.calls, 7))
    late = asyncio.ensure_future(produce(fixture.calls, 8))
    await asyncio.sleep(0)
    await fetch(fixture.calls, "m")
    for request in (produced, late):
        request.cancel()
    ending = asyncio.ensure_future(fixture.streams.end())
    while len(node.streams) < 3:  # noqa: ASYNC110 - nothing says so
        await asyncio.sleep(0)
    assert node.streams == ["produce begins", "share begins", "share ends"]
    node.go.set()
    await ending
    assert [message[0] for message in node.messages if isinstance(message, tuple)] == [7, 8]
    assert node.streams[-1] == "produce ends"
    assert node.half_closed == 1


@pytest.mark.rule("KL-6")
async def test_a_stream_that_fails_fails_its_requests_and_the_next_one_has_a_new_one() -> None:
    node = Node()
    fixture = Fixture(node)
    node.error = InvalidRequestError("no")
    asked = [asyncio.ensure_future(fetch(fixture.calls, "m")) for _ in range(3)]
    for outcome in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(outcome, InvalidRequestError)
    node.error = None
    assert await fetch(fixture.calls, "m") == FETCHED
    assert node.streams == ["share begins", "share ends", "share begins"]
    await fixture.streams.end()


@pytest.mark.rule("KL-6")
async def test_what_a_lost_connection_did_not_wait_for_fails() -> None:
    fixture = Fixture(Node())
    waiting = asyncio.ensure_future(fetch(fixture.calls, "m"))
    fixture.writable.clear()
    await asyncio.sleep(0)
    await fixture.streams.end()
    with pytest.raises(NetworkError):
        await waiting


@pytest.mark.rule("KL-6", "KL-5")
async def test_streams_have_a_bound_and_count_among_the_users_calls() -> None:
    fixture = Fixture(Node())
    for number in range(STREAMS_MAX):
        await fetch(fixture.calls, f"m{number}")
    with pytest.raises(ShareSessionLimitReachedError, match="64 members"):
        await fetch(fixture.calls, "one more")
    assert fixture.gate.calls._of == {"User:alice": STREAMS_MAX}
    await fixture.streams.end()
    assert fixture.gate.calls._of == {}


@pytest.mark.rule("KL-14", "KL-6")
async def test_a_client_that_does_not_read_lets_the_stream_wait() -> None:
    node = Node()
    fixture = Fixture(node)
    fixture.writable.clear()
    asked = [asyncio.ensure_future(fetch(fixture.calls, "m")) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert node.messages == ["fetch"]
    fixture.writable.set()
    await asyncio.gather(*asked)
    assert node.messages == ["fetch"] * 3
    await fixture.streams.end()


class Leader(Node):
    """A node whose share fetches acquire offsets 0 to 9, if they may acquire anything."""

    async def share_stream(self, stream: Any) -> None:
        while (message := await stream.read()) is not None:
            answer = ShareStreamResponse(correlation_id=message.correlation_id)
            if message.fetch is None:
                answer.acknowledge.SetInParent()
            elif message.fetch.max_records:
                partition = answer.fetch.responses.add().partitions.add()
                partition.acquired_records.add(first_offset=0, last_offset=9, delivery_count=1)
            else:
                answer.fetch.SetInParent()
            await stream.write(answer)


def acknowledging(first: int, last: int, kind: int, epoch: int = 2) -> ShareAcknowledgeRequest:
    request = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=epoch)
    partition = request.topics.add().partitions.add()
    partition.acknowledgement_batches.add(first_offset=first, last_offset=last, acknowledge_types=[kind])
    return request


@pytest.mark.rule("KL-108")
async def test_a_member_holds_records_until_all_are_acknowledged_and_acquires_none_at_the_end() -> None:
    one = Fixture(Leader())

    async def fetched() -> int:
        request = ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=1, max_records=10)
        return len((await one.calls.share_fetch("g", "m", 1, made(request))).responses)

    assert not one.streams.holds_records
    assert (await fetched(), one.streams.holds_records) == (1, True)
    for first, last, kind, holds in ((0, 3, ACK_ACCEPT, True), (4, 9, ACK_RENEW, True), (4, 9, ACK_RELEASE, False)):
        await one.calls.share_acknowledge("g", "m", 2, made(acknowledging(first, last, kind)))
        assert one.streams.holds_records == holds
    one.streams.acquire_none = True
    assert (await fetched(), one.streams.holds_records) == (0, False)
    await one.streams.end()


@pytest.mark.rule("KL-106")
async def test_of_a_client_that_has_left_members_streams_end_and_the_one_for_records_does_not() -> None:
    node = Node()
    one = Fixture(node)
    await one.calls.share_fetch("g", "m", 0, made(ShareFetchRequest(group_id="g", member_id="m")))
    produced = asyncio.ensure_future(one.calls.produce(made(ProduceRequest(timeout_ms=1))))
    await asyncio.sleep(0)
    await one.streams.end_members()
    assert node.streams[-1] == "share ends"
    node.go.set()
    answered = await produced
    assert answered is not None
    assert answered.throttle_time_ms == 1
    await one.streams.end()
