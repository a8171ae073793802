"""The seam to OpenTelemetry: when it counts as set up, and which contexts are read from headers."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import metrics, trace
from opentelemetry.trace import NoOpTracerProvider

from kip932.telemetry import (
    context_in,
    context_of,
    headers_of,
    meter,
    own_context_of,
    traceparent_of,
    tracer,
    without_context,
)
from tests.support.telemetry import telemetry

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.rule("CL-171")
def test_there_is_no_tracer_until_the_program_sets_a_provider() -> None:
    with telemetry(set_up=False) as found:
        assert tracer("x") is None
        assert meter("x") is None
        found.set_up()
        assert tracer("x") is not None
        assert meter("x") is not None


@pytest.mark.rule("CL-171")
def test_the_providers_of_the_api_alone_count_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", NoOpTracerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
    assert tracer("x") is None
    assert meter("x") is None


@pytest.mark.rule("CL-171")
def test_nothing_imports_opentelemetry_by_itself() -> None:
    program = """
import sys
from sharegroups import Producer, ShareConsumer, Worker
Producer({"bootstrap.servers": "127.0.0.1:1"}).close(0)
ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}).close()
Worker({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.rule("CL-176")
def test_a_context_is_read_as_it_was_written() -> None:
    read = context_of(GOOD.encode(), b"rojo=00f067aa0ba902b7")
    assert read is not None
    assert read.is_remote
    assert traceparent_of(read) == GOOD
    assert headers_of(read) == [("traceparent", GOOD.encode()), ("tracestate", b"rojo=00f067aa0ba902b7")]
    assert context_in(headers_of(read)) == read


@pytest.mark.rule("CL-174")
def test_a_context_of_an_own_process_is_the_one_that_it_named() -> None:
    read = context_of(GOOD)
    assert read is not None
    assert own_context_of(traceparent_of(read)) == read


@pytest.mark.rule("CL-176")
@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\x00\xff",
        "00-é".encode(),
        GOOD[:-1].encode(),
        GOOD.upper().encode(),
        f"{GOOD}-more".encode(),
        GOOD.replace("00-", "ff-", 1).encode(),
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
        b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" + b"x" * 10_000_000,
        b"\r\nX: 1\r\n" + GOOD.encode(),
        None,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_malformed_traceparent_counts_as_absent(wrong: bytes | None) -> None:
    assert context_of(wrong) is None
    assert context_in([("traceparent", wrong)]) is None


@pytest.mark.rule("CL-176")
@pytest.mark.parametrize("state", [b"\xff", b"=", b"a=" + b"x" * 600, None], ids=["bytes", "form", "length", "none"])
def test_a_malformed_tracestate_is_dropped_and_the_traceparent_stays(state: bytes | None) -> None:
    read = context_in([("traceparent", GOOD.encode()), ("tracestate", state)])
    assert read is not None
    assert dict(read.trace_state) == {}


@pytest.mark.rule("CL-176")
def test_of_several_headers_the_last_one_counts() -> None:
    older = GOOD.replace("b7ad", "aaaa")
    read = context_in([("traceparent", older.encode()), ("a", b"1"), ("traceparent", GOOD.encode())])
    assert read is not None
    assert traceparent_of(read) == GOOD
    assert context_in([("traceparent", GOOD.encode()), ("traceparent", b"broken")]) is None


def test_other_headers_stay_when_a_context_is_removed() -> None:
    assert without_context([("a", b"1"), ("traceparent", b"x"), ("tracestate", None)]) == [("a", b"1")]
