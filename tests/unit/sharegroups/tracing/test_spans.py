"""Spans by their kind, and their place in a trace."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from sharegroups.tracing.spans import Spans, fail
from tests.support.telemetry import context, linked, parent_id, telemetry


@pytest.mark.rule("CL-173", "CL-174")
def test_what_belongs_to_no_caller_has_no_parent_and_the_rest_has_the_current_span() -> None:
    """Shows parents and links; that clients begin the spans is shown beside them."""
    with telemetry() as found:
        spans = Spans(found.tracer())
        other = found.tracer().start_span("other").get_span_context()
        with found.tracer().start_as_current_span("serve") as serve:
            own = serve.get_span_context()
            job, token = spans.job("process", {}, other, continues=False)
            assert spans.current_span() == job.get_span_context()
            spans.leave(token)
            assert spans.current_span() == own
            for span in (
                job,
                spans.sent_batch("batch", {}, [other], is_call=True),
                spans.settled("ack", {}, None, [other]),
                spans.settled("alone", {}, other, ()),
                spans.sent_one("send", {}, other),
                spans.polled("poll", {}, 1),
            ):
                span.end()
        above = {span.name: (parent_id(span), linked(span)) for span in found.spans() if span.name != "serve"}
        assert above == {
            "process": (None, {other.span_id}),
            "batch": (None, {other.span_id}),
            "ack": (None, {other.span_id}),
            "alone": (other.span_id, set()),
            "send": (own.span_id, {other.span_id}),
            "poll": (own.span_id, set()),
        }
        kinds = {span.name: span.kind for span in found.spans()}
        assert (kinds["process"], kinds["batch"], kinds["send"]) == (
            SpanKind.CONSUMER,
            SpanKind.CLIENT,
            SpanKind.PRODUCER,
        )


@pytest.mark.rule("CL-174")
def test_a_span_that_failed_says_why() -> None:
    with telemetry() as found:
        span, token = Spans(found.tracer()).job("process", {}, None, continues=True)
        Spans.leave(token)
        fail(span, "KeyError", "no key")
        with Spans.beside(span.get_span_context()):
            assert Spans.current_span() == span.get_span_context()
        span.end()
        ended = found.one("process")
        assert (ended.status.status_code, ended.status.description) == (StatusCode.ERROR, "no key")
        assert (ended.attributes or {})["error.type"] == "KeyError"
        assert context(ended).is_valid
