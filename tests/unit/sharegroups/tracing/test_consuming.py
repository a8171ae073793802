"""A consumer's spans and metrics: polls, acknowledgements, renewals."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from sharegroups.aio import ShareConsumer
from sharegroups.errors import WakeupError
from sharegroups.messages import AcknowledgeType
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.telemetry import context, linked, parent_id, telemetry

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", 0xB7AD6B7169203331
CONSUMED = "messaging.client.consumed.messages"
DURATION = "messaging.client.operation.duration"


def produce_traced(fake: FakeCluster, *spans: int, topic: str = "t") -> None:
    """Store one record for each span; 0: without a context, -1: with a malformed one."""
    records = []
    for number, span in enumerate(spans):
        value = b"broken" if span < 0 else f"00-{TRACE}-{span:016x}-01".encode()
        records.append((None, str(number).encode(), [("traceparent", value)] if span else (), 1000))
    fake.log(topic).append(encode(records)[0], len(records))
    fake.notify()


@pytest.mark.rule("CL-173", "CL-176")
@on_fake_cluster()
async def test_a_poll_that_returns_records_is_linked_to_what_they_carry(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert len(await c.poll(1)) == 0
            assert found.spans() == []
            produce_traced(fake, SPAN, 0, SPAN + 1, -1)
            assert len(await c.poll(5)) == 4
            span = found.one("poll t")
            assert span.kind is SpanKind.CLIENT
            assert linked(span) == {SPAN, SPAN + 1}
            assert dict(span.attributes or {}) == {
                "messaging.system": "kafka",
                "messaging.operation.name": "poll",
                "messaging.operation.type": "receive",
                "messaging.destination.name": "t",
                "messaging.destination.partition.id": "0",
                "messaging.consumer.group.name": "g",
                "messaging.batch.message_count": 4,
                "sharegroups.member.id": c.member_id,
            }
        assert [point.value for point in found.points(CONSUMED)] == [4]


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_a_span_is_linked_once_to_what_several_records_carry(fake: FakeCluster) -> None:
    """The records of a batch often carry the same context; one that many carry leaves room for the links to others."""
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce_traced(fake, *[SPAN] * 200, SPAN + 1, *[SPAN + 2] * 9)
            messages = list(await c.poll(5))
            assert len(messages) == 210
            c.acknowledge(messages[0])
            c.acknowledge(messages[199])
            c.acknowledge(messages[200])
            for message in (*messages[1:199], *messages[201:]):
                c.acknowledge(message, AcknowledgeType.RELEASE)
            await c.commit_sync()
        ids = {name: [link.context.span_id for link in found.one(name).links] for name in ("poll t", "ack t", "nack t")}
        assert ids == {"poll t": [SPAN, SPAN + 1, SPAN + 2], "ack t": [SPAN, SPAN + 1], "nack t": [SPAN, SPAN + 2]}


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_a_poll_of_several_topics_is_named_by_its_operation(fake: FakeCluster) -> None:
    fake.add_topic("u")
    for topic in ("t", "u"):
        produce(fake, topic=topic)
    with telemetry() as found:
        async with consumer(fake) as c:
            c.subscribe(["t", "u"])
            count = 0
            while count < 2:
                count += len(await c.poll(5))
        assert {span.name for span in found.spans()} <= {"poll", "poll t", "poll u", "ack t", "ack u"}
        counts = {point.attributes["messaging.destination.name"]: point.value for point in found.points(CONSUMED)}
        assert counts == {"t": 1, "u": 1}


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_each_type_of_acknowledgement_has_a_span_linked_to_its_own_records(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce_traced(fake, SPAN, SPAN + 1, SPAN + 2, SPAN + 3)
            messages = list(await c.poll(5))
            kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT]
            for message, kind in zip(messages, kinds, strict=True):
                c.acknowledge(message, kind)
            await c.commit_sync()
        settled = {
            (span.name, (span.attributes or {})["sharegroups.acknowledge_type"]): linked(span)
            for span in found.spans()
            if span.name != "poll t" and (span.attributes or {})["messaging.operation.type"] == "settle"
        }
        assert settled == {
            ("ack t", "accept"): {SPAN, SPAN + 3},
            ("nack t", "release"): {SPAN + 1},
            ("nack t", "reject"): {SPAN + 2},
        }
        assert (found.one("ack t").attributes or {})["messaging.batch.message_count"] == 2
        operations = {point.attributes["messaging.operation.name"] for point in found.points(DURATION)}
        assert operations == {"poll", "ack", "nack"}


DURATION = "messaging.client.operation.duration"


@pytest.mark.rule("CL-173", "CM-216")
@on_fake_cluster()
async def test_the_request_names_the_span_that_sends_it(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce_traced(fake, SPAN)
            (message,) = await c.poll(5)
            fake.traceparents.clear()
            c.acknowledge(message)
            await c.commit_sync()
            assert f"{context(found.one('ack t')).span_id:016x}" in "".join(fake.traceparents)
            await c.poll(1)
            assert fake.traceparents[-1] == "", "a request without acknowledgements has no span"


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_renewals_have_spans_and_count_no_delivery(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce(fake)
            (message,) = await c.poll(5)
            c.acknowledge(message, AcknowledgeType.RENEW)
            await c.commit_sync()
            (again,) = await c.poll(5)
            async with c.keep_alive(again):
                await asyncio.sleep(20)
            c.acknowledge(again)
        assert len(found.spans("renew t")) >= 2
        assert [point.value for point in found.points(CONSUMED)] == [1]


@pytest.mark.rule("CL-173", "CL-175")
@on_fake_cluster()
async def test_a_refused_acknowledgement_says_so(fake: FakeCluster) -> None:
    """Of CL-175, the duration of a refused acknowledgement, with its error."""
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce(fake)
            (message,) = await c.poll(5)
            fake.errors["acknowledge"].append(121)
            c.acknowledge(message)
            await c.commit_sync()
        span = found.one("ack t")
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "INVALID_RECORD_STATE"
        failed = [point for point in found.points(DURATION) if "error.type" in point.attributes]
        assert [point.attributes["error.type"] for point in failed] == ["INVALID_RECORD_STATE"]
        assert [point.count for point in failed] == [1]


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_a_job_alone_in_its_acknowledgement_is_the_parent_and_several_are_links(fake: FakeCluster) -> None:
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce_traced(fake, SPAN, SPAN + 1, SPAN + 2)
            messages = list(await c.poll(5))
            jobs = [found.tracer().start_span(f"process {number}").get_span_context() for number in range(3)]
            for message, job in zip(messages, jobs, strict=True):
                trace = message._source.delivered.trace
                assert trace is not None
                trace.jobs[message.offset()] = job
            c.acknowledge(messages[0], AcknowledgeType.RELEASE)
            c.acknowledge(messages[1])
            c.acknowledge(messages[2])
            await c.commit_sync()
        nack, ack = found.one("nack t"), found.one("ack t")
        assert parent_id(nack) == jobs[0].span_id
        assert parent_id(ack) == context(found.one("poll t")).span_id
        assert linked(ack) == {jobs[1].span_id, jobs[2].span_id}


@pytest.mark.rule("CL-175")
@on_fake_cluster()
async def test_without_a_sampled_span_headers_are_not_read_and_metrics_are_complete(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> object:
        raise AssertionError("the headers were read")

    monkeypatch.setattr("sharegroups.tracing.consuming.context_in", refused)
    with telemetry(ALWAYS_OFF) as found:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            produce_traced(fake, SPAN)
            assert len(await c.poll(5)) == 1
            await c.commit_sync()
        assert found.spans() == []
        assert [point.value for point in found.points(CONSUMED)] == [1]


@pytest.mark.rule("CL-175")
@on_fake_cluster()
async def test_records_of_an_interrupted_poll_count_once(fake: FakeCluster) -> None:
    """Shows a poll that raises before it returns them; the blocking consumer's take_back is the same step."""
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            produce(fake, 2)
            await interrupted(c)
            c._engine.take_back()
            assert len(await c.poll(5)) == 2
            c._engine.ledger._handed.clear()
        assert [point.value for point in found.points(CONSUMED)] == [2]


async def interrupted(c: ShareConsumer) -> None:
    while not await c._engine.poll(5):
        pass
    c.wakeup()
    with pytest.raises(WakeupError):
        c._engine.raise_background()


@pytest.mark.rule("CL-173")
@on_fake_cluster()
async def test_acknowledgements_whose_streams_break_end_their_spans(fake: FakeCluster) -> None:
    """Streams break while acknowledgements are sent, and while the consumer closes. Of CL-173 this shows that every
    span of an acknowledgement ends, one for each (a); when it begins and ends, its parent and links, the poll's span
    and (b) are shown by the tests above, and a single job's by tests/unit/sharegroups/worker/test_watching.py."""
    with telemetry() as found:
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            for number in range(6):
                produce_traced(fake, SPAN + number)
                while not (messages := list(await c.poll(5))):
                    pass
                for message in messages:
                    c.acknowledge(message, AcknowledgeType.RENEW if number == 0 else AcknowledgeType.ACCEPT)
                committing = asyncio.ensure_future(c.commit_sync(timeout=5))
                for _ in range(number):
                    await asyncio.sleep(0)
                for node in list(fake.stream_tasks):
                    fake.drop_streams(node)
                await asyncio.gather(committing, return_exceptions=True)
            produce_traced(fake, SPAN)
            while not (messages := list(await c.poll(5))):
                pass
            c.acknowledge(messages[0])
            for node in list(fake.stream_tasks):
                fake.drop_streams(node)
        assert found.unended() == []
        kinds = Counter(span.name for span in found.spans())
        assert (kinds["poll t"], kinds["renew t"]) == (7, 1)
        assert kinds["ack t"] >= 6
