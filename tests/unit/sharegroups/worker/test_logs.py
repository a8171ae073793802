"""The log of `Worker.run()`, including one line at the start about a topic that does not exist."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from sharegroups.cli.progress import logging_with_progress
from sharegroups.connection.core.stall_diagnosis import LEADERLESS, UNKNOWN, Trouble
from sharegroups.errors import ConfigError
from sharegroups.worker.logs import logging_to_stderr, missing_topics_logged_once

LOG = logging.getLogger("sharegroups.worker")
WATCH = logging.getLogger("sharegroups.consuming.stall_watch")


@pytest.mark.rule("CL-128", "CL-181")
def test_a_program_without_logging_gets_lines_with_time_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    root, errors = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("SHAREGROUPS_LOG_FORMAT", "console")
    with logging_to_stderr():
        LOG.info("stopped: 1 done")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO stopped: 1 done\n", errors.getvalue())
    assert root.handlers == []
    assert logging.getLogger("sharegroups").level == logging.NOTSET


@pytest.mark.rule("CL-181")
def test_in_a_file_a_line_is_json_with_the_fields_and_the_traceback_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.delenv("SHAREGROUPS_LOG_FORMAT", raising=False)
    with logging_to_stderr():
        fields = {"offset": 3, "topic": "t\x1b", "handler": "h", "group": "g"}
        LOG.error("t-0@3: h failed\nTraceback\n  \u202e", extra={"fields": fields})
    (line,) = errors.getvalue().splitlines()
    entry = json.loads(line)
    order = ["timestamp", "level", "event", "service", "group", "topic", "offset", "handler", "logger", "exception"]
    assert list(entry) == order
    assert (entry["event"], entry["service"], entry["exception"]) == (
        "t-0@3: h failed", "worker", "Traceback\n  \u202e"
    )  # fmt: skip
    assert "\u202e" not in line, "it is escaped"


@pytest.mark.rule("CL-181")
def test_a_form_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("SHAREGROUPS_LOG_FORMAT", "xml")
    with pytest.raises(ConfigError, match="SHAREGROUPS_LOG_FORMAT is 'xml'; expected one of auto, json, text, console"):
        logging_to_stderr().__enter__()


def test_a_programs_own_logging_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    root, own = logging.getLogger(), logging.NullHandler()
    for owner in (root, logging.getLogger("sharegroups")):
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(owner, "handlers", [own])
        with logging_to_stderr():
            assert root.handlers == ([own] if owner is root else [])
            assert logging.getLogger("sharegroups").level == logging.NOTSET
        monkeypatch.setattr(owner, "handlers", [])


def test_a_command_leaves_the_level_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    ours = logging.getLogger("sharegroups")
    for quiet, level in ((True, logging.WARNING), (False, logging.INFO)):
        with logging_with_progress(lambda: "", quiet):
            assert ours.level == level
        assert ours.level == logging.NOTSET


@pytest.mark.rule("CL-125")
def test_the_first_check_does_not_report_again_which_topics_are_missing(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0

    def check(kind: str, *topics: str) -> int:
        caplog.clear()
        trouble = Trouble(kind, "127.0.0.1:1", topics)
        WATCH.warning("%s", trouble.text(), extra={"trouble": trouble})
        return len(caplog.records)

    with missing_topics_logged_once(frozenset({"a", "b"}), lambda: now_s):
        assert check(UNKNOWN, "b", "a") == 0
        assert check(UNKNOWN, "a") == check(UNKNOWN, "a", "b", "c") == check(LEADERLESS, "a", "b") == 1, "that is new"
        now_s += 11
        assert check(UNKNOWN, "a", "b") == 1, "it was deleted later"
    now_s = 100.0
    assert check(UNKNOWN, "a", "b") == 1, "another consumer's"
