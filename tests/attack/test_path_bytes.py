"""Bytes in a call's path that are not text do not disturb any other client, connected or new (CM-84)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest
from tests.attack.http2 import Connection, message
from tests.integration.scenarios.wire import Wire
from tests.support.node import QUICK, Cluster

pytestmark = [pytest.mark.attack, pytest.mark.asyncio]

HEALTH = b"/grpc.health.v1.Health/Check"
NO_TEXT = (b"/\xff", b"\xff\xfe\x00", b"/kip932.api.v1.ClusterService/\x80", b"/" + b"\xc3" * 4_000, b"")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(QUICK) as running:
        yield running


def _asked(connection: Connection, path: bytes) -> bytes:
    """Return the trailers that end a call with an empty message; b"" when it is reset."""
    stream = connection.call(path)
    connection.data(stream, message(b""), end=True)
    return connection.wait_end(stream)


@pytest.mark.rule("CM-84")
@pytest.mark.parametrize("port", ["client", "internal"])
async def test_bytes_that_are_no_text_in_a_path_disturb_no_client(cluster: Cluster, port: str) -> None:
    address = cluster.bootstrap if port == "client" else cluster.internal
    async with Wire(cluster.bootstrap) as there_before:
        await there_before.call("DescribeCluster", DescribeClusterRequest())
        with Connection(address) as open_before:
            for path in NO_TEXT:
                with Connection(address) as hostile, contextlib.suppress(AssertionError):
                    _asked(hostile, path)  # response, reset or close: that affects only the hostile client
                with Connection(address) as newcomer:
                    assert _asked(newcomer, HEALTH), f"no newcomer is served after {path[:20]!r}"
            assert _asked(open_before, HEALTH), "an open connection was lost"
        await there_before.call("DescribeCluster", DescribeClusterRequest())
        async with Wire(cluster.bootstrap) as wire:
            await wire.call("DescribeCluster", DescribeClusterRequest())
    assert "Traceback" not in cluster.node.errors


@pytest.mark.rule("CM-84")
async def test_a_path_that_is_not_served_is_unimplemented(cluster: Cluster) -> None:
    for path in (b"/\xff", b"/no.Service/Method"):
        with Connection(cluster.bootstrap) as connection:
            assert b"grpc-status\x0212" in _asked(connection, path)
