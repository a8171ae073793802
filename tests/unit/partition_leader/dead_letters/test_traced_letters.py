"""The span of the leader that writes dead letters: to whose traces it belongs, and when there is none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from kip932.api.v1.record_batch_pb2 import Header, Record, RecordBatch
from kip932.errors import NotLeaderOrFollowerError
from partition_leader.dead_letters import preparing
from partition_leader.topic_log.core.batch import NewBatch
from shard_runtime.tracing import tracing
from tests.support.telemetry import Collected, linked, node_telemetry, parent_id, telemetry
from tests.unit.partition_leader.dead_letters.letters import REJECT, configure, passes
from tests.unit.partition_leader.share_partition.letter_facts import DLQ
from tests.unit.partition_leader.share_partition.worlds import World, run, settle

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", 0xB7AD6B7169203331
NAME = "send dlq.t"
#: What senders that are forged or broken may put into one record.
HOSTILE = {
    "long": [("traceparent", b"0" * 100_000), ("tracestate", b"a=" + b"b" * 100_000), ("baggage", b"c" * 100_000)],
    "control characters": [("traceparent", b"00-\x00\x1b[2J\r\n" + b"\xff" * 40), ("tracestate", b"\x00=\x1b\n,=")],
    "many": [(name, b"no") for name in ("traceparent", "tracestate", "baggage") for _ in range(1_000)],
}


@pytest.fixture
def collected() -> Iterator[Collected]:
    with node_telemetry() as found:
        yield found


def traceparent(span: int, flags: int = 1) -> bytes:
    return f"00-{TRACE}-{span:016x}-{flags:02x}".encode()


def with_headers(*each: list[tuple[str, bytes]]) -> NewBatch:
    """Return a batch with one record for each list of headers."""
    records = [Record(value=b"v", headers=[Header(key=key, value=value) for key, value in one]) for one in each]
    return NewBatch(RecordBatch(base_timestamp_ms=7, records=records).SerializeToString(), len(records), 7)


async def reject(world: World, *headers: list[tuple[str, bytes]], **fields: Any) -> None:
    """Configure the queue; then produce records with these headers, fetch them and reject them."""
    configure(world, **fields)
    await world.log().append([with_headers(*headers)], 10_000)
    member = world.member()
    first, last, _ = (await member.fetch(0).ranges(0))[0]
    assert await member.accept(first, last, 0, kind=REJECT).ack_error(0) is None
    await settle()


def letters(world: World) -> list[Record]:
    """Return the dead letters in the last request to the other node."""
    (topic,) = world.elsewhere.requests[-1].topic_data
    return [record for batch in topic.partition_data[0].batches for record in
            RecordBatch.FromString(batch.record_batch).records]  # fmt: skip


def written(collected: Collected, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> ReadableSpan:
    run(scenario)
    return collected.one(NAME)


@pytest.mark.rule("CM-216", "CL-176")
@pytest.mark.parametrize("copies", [True, False])
def test_the_writing_of_a_letter_belongs_to_the_trace_of_its_record(collected: Collected, copies: bool) -> None:
    async def scenario(world: World) -> None:
        await reject(world, [("traceparent", traceparent(SPAN)), ("tracestate", b"shop=1")], copies=copies)
        (letter,) = letters(world)
        found = {header.key: header.value for header in letter.headers}
        assert (found.get("traceparent"), found.get("tracestate")) == (
            (traceparent(SPAN), b"shop=1") if copies else (None, None)
        )

    span = written(collected, scenario)
    assert (parent_id(span), linked(span), span.kind) == (SPAN, set(), SpanKind.PRODUCER)
    assert span.status.is_unset
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "dlq.t",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
    }


@pytest.mark.rule("CM-216")
def test_letters_written_together_have_one_span_that_is_linked_to_each_of_their_records(collected: Collected) -> None:
    async def scenario(world: World) -> None:
        sent = [traceparent(SPAN, flags=0), *(traceparent(SPAN + number) for number in (1, 2, 2, 3)), b"no"]
        await reject(world, *([("traceparent", value)] for value in sent), [])

    span = written(collected, scenario)
    assert (parent_id(span), linked(span)) == (SPAN + 1, {SPAN + 2, SPAN + 3})
    assert (span.attributes or {})["messaging.batch.message_count"] == 7


@pytest.mark.rule("CM-216")
def test_each_attempt_to_write_a_letter_has_a_span_and_says_why_it_failed(collected: Collected) -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.answers.append(NotLeaderOrFollowerError.code)
        await reject(world, [("traceparent", traceparent(SPAN))], copies=True)
        first = letters(world)
        await passes(5)
        assert len(world.elsewhere.requests) == 2
        assert letters(world) == first, "a retry adds no header"

    run(scenario)
    failed, done = collected.spans(NAME)
    assert {parent_id(failed), parent_id(done)} == {SPAN}
    assert ((failed.attributes or {})["error.type"], "error.type" in (done.attributes or {})) == (
        "NOT_LEADER_OR_FOLLOWER",
        False,
    )


@pytest.mark.rule("CM-216")
def test_the_append_to_a_log_of_this_node_belongs_to_the_letters_span(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        led, queue = world.leader.led.log, world.log(1)  # another partition plays the dead-letter topic
        monkeypatch.setattr(
            world.leader.led, "log", lambda partition: queue if partition.topic_id == DLQ else led(partition)
        )
        await reject(world, [("traceparent", traceparent(SPAN))])

    span = written(collected, scenario)
    (append,) = collected.spans("append")
    context = span.get_span_context()
    assert context is not None
    assert parent_id(append) == context.span_id


@pytest.mark.rule("CM-216")
def test_a_record_that_is_not_in_memory_is_not_read_for_its_trace(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        log = world.log()
        monkeypatch.setattr(log, "read_cached", lambda *_args, **_fields: None)
        await reject(world, [("traceparent", traceparent(SPAN))])
        assert len(letters(world)) == 1

    run(scenario)
    assert collected.spans() == []


@pytest.mark.rule("CM-216")
def test_without_a_provider_a_letter_has_its_records_context_and_no_span() -> None:
    async def scenario(world: World) -> None:
        await reject(world, [("traceparent", traceparent(SPAN))], copies=True)
        (letter,) = letters(world)
        assert (letter.headers[0].key, letter.headers[0].value) == ("traceparent", traceparent(SPAN))

    with telemetry(set_up=False) as found:
        tracing.refresh()
        run(scenario)
        assert found.spans() == []


@pytest.mark.rule("CL-176", "CM-216")
@pytest.mark.parametrize("headers", HOSTILE.values(), ids=HOSTILE)
def test_forged_headers_of_a_trace_are_copied_as_they_are_and_trace_nothing(
    collected: Collected, headers: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_DECODED_AT_ONCE", 1 << 20)  # virtual time knows no threads

    async def scenario(world: World) -> None:
        await reject(world, headers, copies=True)
        (letter,) = letters(world)
        assert [(header.key, header.value) for header in letter.headers][: len(headers)] == headers

    run(scenario)
    assert collected.spans() == []
