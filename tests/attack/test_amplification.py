"""Short requests with long responses, or that decompress to long ones: refused, and the node's memory does not grow."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from kip932.api.v1 import describe_configs_pb2, metadata_pb2
from kip932.ids import RESOURCE_BROKER
from sharegroups import Admin, NewTopic
from tests.attack.canary import Canary
from tests.attack.http2 import Connection, message
from tests.attack.watch import MIB
from tests.integration.scenarios.wire import METHODS
from tests.support.node import Cluster, unique

pytestmark = pytest.mark.attack

#: The maximum growth of a node's memory in one of these tests; before the fix each took 64 MiB to 3 GiB.
GROWTH_MAX: Final = 96 * MIB
#: An entry with an empty message or an empty string as field 1.
EMPTY_ENTRY: Final = b"\x0a\x00"


def peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _gzipped(body: bytes, times: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(body) for _ in range(times)) + packer.flush()


def _refused(cluster: Cluster, method: str, body: bytes) -> Any:
    with grpc.insecure_channel(cluster.bootstrap, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: Any = channel.unary_unary(METHODS[method].path)
        with pytest.raises(grpc.RpcError) as refused:
            call(body, timeout=30)
    return refused.value


@pytest.mark.rule("CM-90")
@pytest.mark.parametrize(
    "path",
    [
        METHODS["DescribeShareGroupOffsets"].path,
        METHODS["ProduceStream"].path,
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_a_compressed_message_is_refused_and_never_unpacked(attacked: Cluster, canary: Canary, path: str) -> None:
    bomb = _gzipped(EMPTY_ENTRY * (MIB // 2), 60)
    before = peak_bytes(attacked.node.pid)
    with Connection(attacked.bootstrap) as connection:
        for _ in range(5):
            call = connection.call(path, "gzip")
            connection.data(call, message(bomb, compressed=True), end=True)
            assert b"Compression algorithm 'gzip' is disabled" in connection.wait_end(call)
    assert peak_bytes(attacked.node.pid) - before < GROWTH_MAX


@pytest.mark.rule("CM-91")
@pytest.mark.parametrize("method", ["ShareGroupDescribe", "DescribeShareGroupOffsets"])
@pytest.mark.parametrize(
    ("entries", "refusal"), [(1_001, "at most 1000 go into one request"), (3_500_000, "at most 1048576")]
)
def test_too_many_groups_are_refused_whole(
    attacked: Cluster, canary: Canary, method: str, entries: int, refusal: str
) -> None:
    before = peak_bytes(attacked.node.pid)
    for _ in range(5):
        error = _refused(attacked, method, EMPTY_ENTRY * entries)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal in error.details()
    assert peak_bytes(attacked.node.pid) - before < GROWTH_MAX


@pytest.mark.rule("CM-91")
def test_what_is_named_ten_thousand_times_is_answered_once(attacked: Cluster, canary: Canary) -> None:
    topic = unique("wide")
    with Admin({"bootstrap.servers": attacked.bootstrap}) as admin:
        assert admin.create_topics([NewTopic(topic, 200)]) == {topic: None}
    before = peak_bytes(attacked.node.pid)
    asked = metadata_pb2.MetadataRequest.Topic(name=topic)
    request = metadata_pb2.MetadataRequest()
    request.topics.values.extend([asked] * 10_000)
    resources = [describe_configs_pb2.DescribeConfigsRequest.Resource(resource_type=RESOURCE_BROKER)] * 1_000
    configs = describe_configs_pb2.DescribeConfigsRequest(
        resources=resources, include_documentation=True, include_synonyms=True
    )
    with grpc.insecure_channel(attacked.bootstrap) as channel:

        def answer(method: str, asked: Any) -> bytes:
            call: Any = channel.unary_unary(METHODS[method].path, lambda one: one.SerializeToString(), bytes)
            return bytes(call(asked, timeout=30))

        assert len(metadata_pb2.MetadataResponse.FromString(answer("Metadata", request)).topics) == 1
        assert len(answer("DescribeConfigs", configs)) < MIB
    assert peak_bytes(attacked.node.pid) - before < GROWTH_MAX
