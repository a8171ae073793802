"""Each damaged entry is logged once and counted once, however often it is read."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import Entry, StreamId

GOOD = Entry(StreamId(7, 1), "S", b"one")
BAD = Entry(StreamId(7, 2), "S", b"two", damage="its checksum differs")


@pytest.mark.rule("CM-101")
def test_an_entry_is_logged_and_counted_once_with_its_place_and_reason() -> None:
    notes, counted = DamageNotes(), list[str]()
    with capture_logs() as lines:
        notes.note("{gc:7}:log", [GOOD, BAD])
        notes.count(counted.append)
        assert counted == ["{gc:7}:log"], "what was found before anybody counted"
        notes.note("{gc:7}:log", [BAD, GOOD])
        notes.note("{sgs:3}:log", [BAD])
    assert counted == ["{gc:7}:log", "{sgs:3}:log"]
    assert [(line["log_level"], line["stream"], line["entry"], line["cause"]) for line in lines] == [
        ("error", "{gc:7}:log", "7-2", "its checksum differs"),
        ("error", "{sgs:3}:log", "7-2", "its checksum differs"),
    ]


@pytest.mark.rule("CM-101")
def test_a_command_that_prints_what_it_finds_logs_nothing() -> None:
    notes, counted = DamageNotes(quiet=True), list[str]()
    notes.count(counted.append)
    with capture_logs() as lines:
        notes.note("{gc:7}:log", [BAD])
    assert (lines, counted) == ([], ["{gc:7}:log"])
