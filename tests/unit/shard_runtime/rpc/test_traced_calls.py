"""Unary calls whose metadata name a span."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from opentelemetry.trace import StatusCode

from kip932.api.v1.cluster_service_pb2 import DESCRIPTOR
from kip932.errors import InvalidRequestError
from kip932.rpc.transport import CLIENT_ID_KEY, service_methods
from shard_runtime.rpc.adapter import Call, _traced, call_of
from shard_runtime.tracing import tracing
from tests.support.telemetry import Collected, node_telemetry, parent_id

SENDER = 0xB7AD6B7169203331
TRACEPARENT = f"00-0af7651916cd43dd8448eb211c80319c-{SENDER:016x}-01"
METHOD = service_methods(DESCRIPTOR.services_by_name["ClusterService"])["Metadata"]


@pytest.fixture
def collected() -> Iterator[Collected]:
    with node_telemetry() as found:
        yield found


def call(*metadata: tuple[str, str]) -> Call:
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:5", invocation_metadata=lambda: metadata)
    return call_of(cast(Any, context))


async def answer(error: Exception | None = None) -> Message:
    if error is not None:
        raise error
    return METHOD.response_type()


@pytest.mark.rule("CM-216")
def test_a_call_from_a_sampled_span_has_a_span(collected: Collected) -> None:
    made = call((CLIENT_ID_KEY, "me"), ("traceparent", TRACEPARENT))
    assert (made.client_id, made.traceparent) == ("me", TRACEPARENT)
    asyncio.run(_traced(made, METHOD, answer()))
    with pytest.raises(InvalidRequestError):
        asyncio.run(_traced(made, METHOD, answer(InvalidRequestError("no"))))
    done, failed = collected.spans()
    assert (done.name, parent_id(done)) == (METHOD.path[1:], SENDER)
    assert [span.status.status_code for span in (done, failed)] == [StatusCode.UNSET, StatusCode.ERROR]


@pytest.mark.rule("CM-216")
def test_a_malformed_one_is_answered_without(collected: Collected) -> None:
    asyncio.run(_traced(call(("traceparent", "x")), METHOD, answer()))
    assert collected.spans() == []


@pytest.mark.rule("CM-216")
def test_without_a_provider_the_metadata_are_not_read() -> None:
    tracing.refresh()
    assert call(("traceparent", TRACEPARENT)).traceparent == ""
