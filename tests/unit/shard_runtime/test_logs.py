"""The shape of a log line."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from shard_runtime.logs import configure_logs
from shard_runtime.tracing import tracing
from tests.support.telemetry import telemetry


@pytest.mark.rule("CM-218")
def test_a_log_line_is_json_without_a_terminal_and_carries_its_context() -> None:
    out = io.StringIO()
    try:
        configure_logs("info", "auto", out)
        log = structlog.get_logger("a.test")
        with structlog.contextvars.bound_contextvars(group="g"):
            log.debug("hidden")
            log.warning("shard_dropped", shard="{gc:7}")
    finally:
        structlog.reset_defaults()
    (line,) = out.getvalue().splitlines()
    entry = json.loads(line)
    assert list(entry) == ["timestamp", "level", "event", "group", "shard"], "in the order of all programs"
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "shard_dropped", "level": "warning", "group": "g", "shard": "{gc:7}"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.rule("CM-218")
def test_a_terminal_gets_plain_lines_and_a_choice_is_kept_anywhere() -> None:
    for form, out, is_text in (
        ("auto", Terminal(), True), ("json", Terminal(), False), ("console", io.StringIO(), True)
    ):  # fmt: skip
        try:
            configure_logs("debug", form, out, service="up")
            structlog.get_logger("a.test").debug("seen", topic="t", b=2, a="x\x1b[2Jy", offset=7)
        finally:
            structlog.reset_defaults()
        line = out.getvalue()
        assert line.count("\n") == 1
        if is_text:
            assert line.endswith(" DEBUG seen topic=t offset=7 a='x\\x1b[2Jy' b=2\n")
        else:
            assert list(json.loads(line)) == ["timestamp", "level", "event", "service", "topic", "offset", "a", "b"]


@pytest.mark.rule("CM-218")
def test_a_traceback_follows_a_line_of_text_and_is_the_last_field_of_json() -> None:
    for form in ("console", "json"):
        out = io.StringIO()
        configure_logs("info", form, out)
        try:
            raise ValueError("no room")
        except ValueError:
            structlog.get_logger().exception("failed", zone=1)
        finally:
            structlog.reset_defaults()
        first, *rest = out.getvalue().splitlines()
        if form == "json":
            assert list(json.loads(first)) == ["timestamp", "level", "event", "zone", "exception"]
        else:
            assert first.endswith(" ERROR failed zone=1")
            assert (rest[0], rest[-1]) == ("Traceback (most recent call last):", "ValueError: no room")


@pytest.mark.rule("CM-217")
def test_a_line_has_the_ids_of_the_current_span() -> None:
    out = io.StringIO()
    try:
        configure_logs("info", "json", out)
        log = structlog.get_logger("a.test")
        with telemetry():
            tracing.refresh()
            span = tracing.begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "s/m")
            tracing.within(span, log.info, "within")
            log.info("outside")
    finally:
        tracing.refresh()
        structlog.reset_defaults()
    within, outside = map(json.loads, out.getvalue().splitlines())
    assert within["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert span is not None
    assert within["span_id"] == f"{span.get_span_context().span_id:016x}"
    assert not {"trace_id", "span_id"} & set(outside)


@pytest.mark.rule("CT-170")
@pytest.mark.parametrize("level", ["info", "debug"])
def test_lines_of_level_info_may_wait_until_they_are_asked_for(level: str) -> None:
    out = io.StringIO()
    write = configure_logs(level, "console", out, waits=True)
    try:
        log = structlog.get_logger()
        log.info("begun")
        log.warning("slow")
        assert ("begun" in out.getvalue()) is (level == "debug"), "a developer asked for everything"
        assert "slow" in out.getvalue()
        write()
        log.info("ready")
        write()
    finally:
        structlog.reset_defaults()
    waited = ["slow", "begun", "ready"] if level == "info" else ["begun", "slow", "ready"]
    assert [line.split()[2] for line in out.getvalue().splitlines()] == waited


@pytest.mark.rule("CT-170")
def test_only_so_many_lines_wait() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out, waits=True)
    try:
        for number in range(201):
            structlog.get_logger().info("begun", number=number)
        assert [json.loads(line)["number"] for line in out.getvalue().splitlines()] == list(range(201))
        structlog.get_logger().info("more")
    finally:
        structlog.reset_defaults()
    assert "more" in out.getvalue()


@pytest.mark.rule("CM-61a")
def test_a_logged_exception_shows_no_values_of_variables() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    try:
        secret = "hunter" + "2"
        raise ValueError(len(secret))
    except ValueError:
        structlog.get_logger().exception("failed")
    finally:
        structlog.reset_defaults()
    assert "ValueError" in out.getvalue()
    assert "hunter2" not in out.getvalue()


@pytest.mark.rule("CT-82")
@pytest.mark.parametrize(("form", "escaped"), [("console", r"\x07"), ("json", r"\u0007")])
def test_names_of_others_do_nothing_to_a_terminal(form: str, escaped: str) -> None:
    out = io.StringIO()
    name = "a\x07b\u202ec\x9bd"
    configure_logs("info", form, out)
    try:
        raise ValueError(name)
    except ValueError:
        structlog.get_logger().exception("failed", group=name)
    finally:
        structlog.reset_defaults()
    text = out.getvalue()
    assert [character for character in "\x07\u202e\x9b" if character in text] == []
    assert text.count(escaped) >= 2
