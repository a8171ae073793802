"""A peer that sends invalid messages on a real socket does not flood the log."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.internal.v1.state_stream_pb2 import StateStreamRequest
from kip932.rpc.transport import service_methods
from tests.integration.share_coordinator.test_share_coordinator import Cluster

pytestmark = pytest.mark.asyncio

STREAM = service_methods(service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"])["StateStream"]
BAD = 500


async def test_a_flood_of_bad_state_stream_messages_is_one_line_without_a_trace() -> None:
    cluster = Cluster()
    try:
        node = await cluster.add()
        with capture_logs() as lines:
            stream: Any = await cluster.transport.open_stream(node.server.address, STREAM)
            for number in range(1, BAD + 1):
                message = StateStreamRequest(correlation_id=number)
                message.write.group_id = "g"
                message.write.topics.add(topic_id=b"short").partitions.add(partition=0)
                await stream.write(message)
            answers = [await stream.read() for _ in range(BAD)]
            assert {answer.WhichOneof("response") for answer in answers} == {None}, (
                "each must get a response nevertheless"
            )
            await stream.close()
        reported = [line for line in lines if line["event"].startswith("state_stream_")]
        assert 1 <= len(reported) <= 1 + 60 // 10, "one at once, and one per ten seconds for a very slow machine"
        first = reported[0]
        assert (first["log_level"], first["kind"], first["peer"]) == ("warning", "write", "127.0.0.1")
        assert "16 bytes; 5 came" in first["cause"]
        assert "exc_info" not in first
    finally:
        await cluster.close()
