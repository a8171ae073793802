"""A node's spans: for which requests there are any, and to whom a flush belongs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from kip932.errors import FencedLeaderEpochError
from shard_runtime.tracing import Tracing
from tests.support.telemetry import Collected, context, linked, parent_id, telemetry

SENDER = 0xB7AD6B7169203331
TRACEPARENT = f"00-0af7651916cd43dd8448eb211c80319c-{SENDER:016x}-01"


@pytest.fixture
def collected() -> Iterator[Collected]:
    with telemetry() as found:
        yield found


@pytest.fixture
def tracing(collected: Collected) -> Tracing:
    made = Tracing()
    made.refresh()
    return made


@pytest.mark.rule("CM-216")
def test_without_a_provider_no_request_has_a_span() -> None:
    tracing = Tracing()
    tracing.refresh()
    assert (tracing.on, tracing.current, tracing.begin(TRACEPARENT, "s/m"), tracing.ids()) == (False, None, None, {})
    with tracing.append([], "t", 1):
        pass


@pytest.mark.rule("CM-216")
@pytest.mark.parametrize(
    "sent", ["", "no", TRACEPARENT[:-1] + "0", "00-" + "0" * 32 + f"-{SENDER:016x}-01", "x" * 9_999]
)
def test_a_request_that_no_sampled_span_sent_has_none(tracing: Tracing, collected: Collected, sent: str) -> None:
    assert tracing.begin(sent, "s/m") is None
    with tracing.append([None, None], "t", 1):
        pass
    assert collected.spans() == []


@pytest.mark.rule("CM-216")
def test_a_traced_request_has_a_child_for_each_part(tracing: Tracing, collected: Collected) -> None:
    span = tracing.begin(TRACEPARENT, "s/m")
    assert span is not None
    with pytest.raises(FencedLeaderEpochError), tracing.step("part", span):
        raise FencedLeaderEpochError("no")
    span.end()
    part, request = collected.spans()
    assert (request.name, request.kind, parent_id(request)) == ("s/m", SpanKind.SERVER, SENDER)
    assert parent_id(part) == context(request).span_id
    assert (part.status.status_code, (part.attributes or {})["error.type"]) == (
        StatusCode.ERROR,
        "FENCED_LEADER_EPOCH",
    )


@pytest.mark.rule("CM-216")
def test_a_flush_is_the_child_of_the_first_request_and_linked_to_the_others(
    tracing: Tracing, collected: Collected
) -> None:
    spans = [tracing.begin(TRACEPARENT, f"s/{number}") for number in range(3)]
    with tracing.append([None, spans[0], spans[1], spans[0], None, spans[2]], "{tp:1}", 7):
        pass
    flush = collected.one("append")
    ids = [span.get_span_context().span_id for span in spans if span is not None]
    assert (parent_id(flush), linked(flush), flush.kind) == (ids[0], set(ids[1:]), SpanKind.CLIENT)
    assert dict(flush.attributes or {}) == {
        "db.system.name": "redis",
        "db.operation.name": "XADD",
        "db.operation.batch.size": 7,
        "sharegroups.shard": "{tp:1}",
    }


@pytest.mark.rule("CM-216")
def test_a_flush_that_fails_says_so(tracing: Tracing, collected: Collected) -> None:
    span = tracing.begin(TRACEPARENT, "s/m")
    with pytest.raises(OSError, match="gone"), tracing.append([span], "t", 1):
        raise OSError("gone")
    assert (collected.one("append").attributes or {})["error.type"] == "OSError"


@pytest.mark.rule("CM-216")
def test_a_span_is_current_for_one_call_only_even_if_it_raises(tracing: Tracing) -> None:
    span = tracing.begin(TRACEPARENT, "s/m")
    seen: list[object] = []

    def call(number: int) -> int:
        seen.append(tracing.current)
        tracing.within(None, lambda: seen.append(tracing.current))
        return number // 0 if number else 5

    assert tracing.within(span, call, 0) == 5
    with pytest.raises(ZeroDivisionError):
        tracing.within(span, call, 1)
    assert seen == [span, None] * 2
    assert tracing.current is None


@pytest.mark.rule("CM-217")
def test_the_ids_of_a_log_line_are_those_of_the_nodes_span_or_of_one_that_other_code_made_current(
    tracing: Tracing, collected: Collected
) -> None:
    assert tracing.ids() == {}
    span = tracing.begin(TRACEPARENT, "s/m")
    assert span is not None
    own = {"trace_id": TRACEPARENT[3:35], "span_id": f"{span.get_span_context().span_id:016x}"}
    assert tracing.within(span, tracing.ids) == own
    with collected.tracer().start_as_current_span("other") as other:
        assert tracing.ids()["span_id"] == f"{other.get_span_context().span_id:016x}"
        assert tracing.within(span, tracing.ids) == own
    assert not trace.get_current_span().get_span_context().is_valid
