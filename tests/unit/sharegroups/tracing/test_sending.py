"""A producer's spans, metrics, and the contexts that its records carry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode

from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.errors import MessageTooLargeError
from kip932.telemetry import context_in, traceparent_of
from sharegroups.aio import Producer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.telemetry import context, linked, parent_id, telemetry

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Headers = list[tuple[str, bytes | None]]
SENT = "messaging.client.sent.messages"
#: From the conventions' text.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def producer(fake: FakeCluster, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": fake.bootstrap, "client.id": "me"} | settings, transport=fake.transport())


def stored(fake: FakeCluster) -> list[Headers]:
    """Return the headers of all records that leaders received, in order."""
    sent = [batch for r in fake.produces for t in r.topic_data for part in t.partition_data for batch in part.batches]
    records = [record for batch in sent for record in RecordBatch.FromString(batch.record_batch).records]
    return [[(header.key, header.value) for header in record.headers] for record in records]


def span_id(headers: Headers) -> int | None:
    found = context_in(headers)
    return None if found is None else found.span_id


@pytest.mark.rule("CL-172", "CL-171")
@on_fake_cluster()
async def test_a_send_has_a_span_whose_context_its_record_carries(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            with found.tracer().start_as_current_span("request") as request:
                await p.send("t", b"v", key=b"k", headers={"a": b"1"})
        span = found.one("send t")
        assert span.kind is SpanKind.PRODUCER
        assert parent_id(span) == request.get_span_context().span_id
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 0,
            "messaging.client.id": "me",
        }
        assert stored(fake) == [[("a", b"1"), ("traceparent", traceparent_of(context(span)).encode())]]
        assert all(isinstance(value, bytes) for _, value in stored(fake)[0])


@pytest.mark.rule("CL-172", "CM-216")
@on_fake_cluster()
async def test_a_batch_is_linked_to_its_records_own_contexts_and_gives_its_own_to_the_others(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            with found.tracer().start_as_current_span("request"):
                await p.produce("t", b"1")
            await p.produce("t", b"2", headers={"a": b"1"})
            await p.flush()
        create, send = found.one("create t"), found.one("send t")
        assert [create.kind, send.kind] == [SpanKind.PRODUCER, SpanKind.PRODUCER]
        assert send.parent is None
        assert linked(send) == {context(create).span_id}
        assert (send.attributes or {})["messaging.batch.message_count"] == 2
        assert [span_id(headers) for headers in stored(fake)] == [context(create).span_id, context(send).span_id]
        assert fake.traceparents == [traceparent_of(context(send))]


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_a_batch_of_records_with_own_contexts_is_sent_by_a_client_span(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            with found.tracer().start_as_current_span("request"):
                for number in range(3):
                    await p.produce("t", str(number))
            await p.flush()
        assert found.one("send t").kind is SpanKind.CLIENT
        assert linked(found.one("send t")) == {context(span).span_id for span in found.spans("create t")}


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_a_current_span_replaces_the_context_that_a_record_was_given(fake: FakeCluster) -> None:
    given: Headers = [("traceparent", GOOD), ("a", b"1"), ("traceparent", b"x"), ("tracestate", b"r=1")]
    with telemetry() as found:
        async with producer(fake) as p:
            await p.send("t", b"v", headers=given)
            await p.produce("t", b"v", headers=given[:1])  # no span is current: the context that it has is its own
            await p.flush()
        own = traceparent_of(context(found.spans("send t")[0])).encode()
        assert stored(fake) == [[("a", b"1"), ("traceparent", own)], [("traceparent", GOOD)]]


@pytest.mark.rule("CL-171", "CL-172")
@pytest.mark.parametrize("how", ["not set up", "not sampled", "disabled"])
@on_fake_cluster()
async def test_without_a_sampled_span_records_are_stored_as_they_are(fake: FakeCluster, how: str) -> None:
    with telemetry(ALWAYS_OFF if how == "not sampled" else ALWAYS_ON, set_up=False) as found:
        if how != "not set up":
            found.set_up()
        settings = {"opentelemetry.enable": False} if how == "disabled" else {}
        async with producer(fake, **settings) as p:
            await p.send("t", b"v", key=b"k", headers={"a": b"1"}, timestamp=5)
            await p.produce("t", b"w", timestamp=6)
            await p.flush()
        assert found.spans() == []
        batches = [part.batches[0] for r in fake.produces for t in r.topic_data for part in t.partition_data]
        assert [batch.record_batch for batch in batches] == [
            _plain(b"k", b"v", [("a", b"1")], 5),
            _plain(None, b"w", [], 6),
        ]
        assert fake.traceparents == ["", ""]


def _plain(key: bytes | None, value: bytes, headers: Headers, timestamp_ms: int) -> bytes:
    """Return a batch of one record by protobuf's own writer."""
    batch = RecordBatch(base_timestamp_ms=timestamp_ms)
    record = batch.records.add(key=key, value=value)
    for name, content in headers:
        record.headers.add(key=name, value=content)
    return batch.SerializeToString()


@pytest.mark.rule("CL-171")
@on_fake_cluster()
async def test_a_provider_that_is_set_later_is_used_from_the_next_batch_on(fake: FakeCluster) -> None:
    with telemetry(set_up=False) as found:
        async with producer(fake) as p:
            await p.send("t", b"1")
            found.set_up()
            await p.send("t", b"2")
            await p.send("t", b"3")
        assert stored(fake)[0] == []
        assert span_id(stored(fake)[2]) == context(found.spans("send t")[-1]).span_id


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_a_retried_batch_has_the_same_bytes_and_one_span(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            fake.errors["produce"].append(19)
            await p.produce("t", b"v")
            await p.flush()
        assert len(fake.produces) == 2
        first, second = stored(fake)
        assert first == second
        assert span_id(first) == context(found.one("send t")).span_id


@pytest.mark.rule("CL-172", "CL-175")
@on_fake_cluster()
async def test_a_failed_send_says_why_in_its_span_and_in_the_metrics(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            fake.errors["produce"].append(10)
            with pytest.raises(MessageTooLargeError):
                await p.send("t", b"v")
            await p.send("t", b"v")
        failed, done = found.spans("send t")
        assert (failed.attributes or {})["error.type"] == "MESSAGE_TOO_LARGE"
        assert [failed.status.status_code, done.status.status_code] == [StatusCode.ERROR, StatusCode.UNSET]
        counts = {point.attributes.get("error.type"): point.value for point in found.points(SENT)}
        assert counts == {"MESSAGE_TOO_LARGE": 1, None: 1}


@pytest.mark.rule("CL-175")
@on_fake_cluster()
async def test_records_and_the_time_of_their_batches_are_measured(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake) as p:
            for number in range(20):
                await p.produce("t", str(number))
            await p.flush()
        assert [point.value for point in found.points(SENT)] == [20]
        (point,) = found.points("messaging.client.operation.duration")
        assert point.count == len([span for span in found.spans() if span.name == "send t"])
        assert tuple(point.explicit_bounds) == BUCKETS_S
        assert dict(point.attributes) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "t",
        }


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_no_context_makes_a_record_or_a_batch_too_large(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with producer(fake, **{"max.request.size": 300, "batch.size": 300}) as p:
            await p.send("t", b"x" * 270)
            await p.produce("t", b"y" * 270)
            await p.flush()
            await p.send("t", b"z" * 100)
        assert [bool(headers) for headers in stored(fake)] == [False, False, True]
        assert found.spans("send t")


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_full_batches_have_room_for_contexts(fake: FakeCluster) -> None:
    with telemetry():
        async with producer(fake, **{"batch.size": 100_000, "batch.num.records": 100}) as p:
            fake.hold_produce = asyncio.Event()
            for number in range(150):
                await p.produce("t", str(number) * 300)
            fake.hold_produce.set()
            await p.flush()
        assert all(span_id(headers) is not None for headers in stored(fake))
        assert len(stored(fake)) == 150


class _OfBatches(Sampler):
    """Samples the spans of batches, but not those of the `send` calls whose records they have."""

    def should_sample(self, *given: Any, **more: Any) -> SamplingResult:
        attributes = more.get("attributes") or given[4]
        is_batch = "messaging.destination.partition.id" in attributes
        return SamplingResult(Decision.RECORD_AND_SAMPLE if is_batch else Decision.DROP, attributes)

    def get_description(self) -> str:
        return "of batches"


@pytest.mark.rule("CL-172")
@on_fake_cluster()
async def test_a_batch_whose_only_record_is_taken_back_ends_its_span(fake: FakeCluster) -> None:
    with telemetry(_OfBatches()) as found:
        async with producer(fake) as p:
            fake.errors["produce"].extend([19] * 1_000)  # NOT_ENOUGH_REPLICAS: nothing was written
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await p.send("t", b"gone")
            assert found.unended() == []
        assert (found.one("send t").attributes or {})["error.type"] == "CancelledError"
