"""Faults elsewhere do not reach the application as false callbacks or as unretrieved errors."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from kip932.api.v1.list_groups_pb2 import ListGroupsResponse
from kip932.api.v1.produce_pb2 import ProduceStreamRequest, ProduceStreamResponse
from kip932.errors import KafkaError, NetworkError, RequestTimedOutError
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.aio import Admin
from sharegroups.connection import wire
from sharegroups.connection.streams import CorrelatedStream
from sharegroups.messages import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.virtual_time import now_s, virtual


@pytest.mark.rule("CL-26")
@on_fake_cluster()
async def test_the_callback_hears_nothing_of_records_that_the_application_was_never_given(fake: FakeCluster) -> None:
    produce(fake)
    heard: list[tuple[dict[TopicIdPartition, set[int]], KafkaError | None]] = []
    async with consumer(fake, **EXPLICIT) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append((offsets, error)))
        c.subscribe(["t"])
        engine = c._engine
        fetcher = engine._start().fetcher
        assert (await c.poll(0.0)).is_empty()
        while not fetcher._buffer:
            fetcher.send_fetches(int(now_s() * 1000))
            await asyncio.sleep(0.1)
        fetcher.assign(frozenset())  # the buffered record is released to the group
        await asyncio.sleep(1)
        assert fake.states("t") == {0: "available"}
        await c.poll(0.0)  # callbacks run inside poll
    assert heard == []


@pytest.mark.rule("CL-46")
@on_fake_cluster(nodes=2)
async def test_an_admin_client_outlives_its_bootstrap_node(fake: FakeCluster) -> None:
    async with Admin({"bootstrap.servers": "node1:9000"}, transport=fake.transport()) as admin:
        for _ in range(2):
            (described,) = (await admin.describe_share_groups(["g"])).values()
            assert not isinstance(described, NetworkError | RequestTimedOutError)
            fake.network.stop("node1:9000")


@pytest.mark.rule("GC-123", "CL-46")
@on_fake_cluster(nodes=2)
async def test_groups_of_all_nodes_are_listed_together(fake: FakeCluster) -> None:
    inner, asked = fake.transport(), []

    class Transport:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
            if method is not wire.LIST_GROUPS:
                return await inner.call(address, method, request, timeout_s)
            asked.append(address)
            response = ListGroupsResponse()
            for name in ("both", f"only on {address}"):
                response.groups.add(group_id=name, group_state="Stable", group_type="share")
            return response

    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=cast(Any, Transport())) as admin:
        found = [group.group_id for group in await admin.list_groups()]
    assert sorted(asked) == ["node0:9000", "node1:9000"]
    assert found == ["both", "only on node0:9000", "only on node1:9000"]


class _BrokenStream:
    """Fails on every write, like a stream whose peer was killed."""

    async def write(self, message: Any) -> None:
        raise TransportError(TransportStatus.UNAVAILABLE, "node", "connection reset")

    async def read(self) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return


class _BrokenTransport:
    async def open_stream(self, address: str, method: Any) -> Any:
        return _BrokenStream()


@pytest.mark.rule("P-4")
@virtual
async def test_a_request_whose_write_fails_leaves_no_error_behind_that_was_not_read() -> None:
    stream: CorrelatedStream[ProduceStreamRequest, ProduceStreamResponse] = await CorrelatedStream.open(
        _BrokenTransport(),  # type: ignore[arg-type]
        "node",
        wire.PRODUCE_STREAM,
    )
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with pytest.raises(TransportError, match="connection reset"):
        await stream.request(lambda number: ProduceStreamRequest(correlation_id=number), 1.0)
    gone = asyncio.create_task(stream.request(lambda number: ProduceStreamRequest(correlation_id=number), 1.0))
    await asyncio.gather(gone, return_exceptions=True)
    await stream.close()
    del stream, gone
    gc.collect()  # asyncio reports unretrieved errors when their futures are collected
    assert reported == []
