"""The shape of a log line."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from shard_runtime.logs import configure_logs


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
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "shard_dropped", "level": "warning", "group": "g", "shard": "{gc:7}"}


def test_a_terminal_may_have_plain_lines() -> None:
    out = io.StringIO()
    try:
        configure_logs("debug", "console", out)
        structlog.get_logger("a.test").debug("seen")
    finally:
        structlog.reset_defaults()
    assert "seen" in out.getvalue()
    assert not out.getvalue().startswith("{")


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
