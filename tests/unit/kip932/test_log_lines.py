"""The form of the log lines of every program."""

from __future__ import annotations

import json
import logging

import pytest

from kip932.log_lines import LineFormatter, json_line, ordered, text_line, timestamp
from kip932.printable import printable

EVIL = "a\x1b[2J\x07\x9b\u2028\u202eb\udcff\nc"


@pytest.mark.rule("CM-218")
def test_the_fields_of_a_line_have_one_order() -> None:
    fields = {"zone": 1, "exception": "x", "partition": 0, "topic": "t", "event": "e", "alpha": 2, "level": "info"}
    fields |= {"timestamp": "now", "group": "g", "service": "up", "offset": 9}
    order = ["timestamp", "level", "event", "service", "group", "topic", "partition", "offset", "alpha", "zone"]
    assert list(ordered(fields)) == list(json.loads(json_line(fields))) == [*order, "exception"]


@pytest.mark.rule("CM-218")
def test_a_line_of_text_is_one_line_whatever_its_fields_hold() -> None:
    line = text_line({"timestamp": "T", "level": "error", "event": EVIL, "group": EVIL, EVIL: [EVIL], "n": 1.5})
    assert line.startswith("T ERROR a\\x1b[2J")
    assert " n=1.5" in line
    assert printable(line) == line


@pytest.mark.rule("CM-218")
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("unix:///run/a.sock", "unix:///run/a.sock"), ("two words", "'two words'"), ("", "''"), ("a=b", "'a=b'"),
        ("it's", '"it\'s"'), (None, "None"), (True, "True"), (("a", 1), "('a', 1)"), ("caffè", "caffè"),
    ],
)  # fmt: skip
def test_a_value_is_quoted_where_it_could_be_misread(value: object, shown: str) -> None:
    assert text_line({"event": "e", "v": value}) == f"e v={shown}"


@pytest.mark.rule("CM-218")
def test_json_keeps_every_value_and_shows_no_control_character() -> None:
    line = json_line({"event": EVIL, "other": {"n": object}})
    assert printable(line) == line
    assert json.loads(line) == {"event": EVIL, "other": {"n": "<class 'object'>"}}


@pytest.mark.rule("CM-218")
def test_records_of_the_standard_library_have_the_same_form() -> None:
    record = logging.LogRecord("w", logging.WARNING, __file__, 1, "late by %d s\nTraceback\n\tx", (3,), None)
    record.created = 0.25
    assert LineFormatter(text=True, service="worker").format(record) == (
        "1970-01-01T00:00:00.250000Z WARNING late by 3 s\nTraceback\n\tx"
    )
    assert json.loads(LineFormatter(text=False, service="worker").format(record)) == {
        "timestamp": timestamp(0.25), "level": "warning", "event": "late by 3 s", "service": "worker", "logger": "w",
        "exception": "Traceback\n\tx",
    }  # fmt: skip
