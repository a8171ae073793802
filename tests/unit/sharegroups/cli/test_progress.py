"""The worker's log, and the progress line that a person sees below it."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from sharegroups.cli.progress import logging_with_progress


class Terminal(io.StringIO):
    """A standard error that a person looks at."""

    def isatty(self) -> bool:
        return True


def bare_root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The root logger as in a program that has set up no logging; pytest's handlers come when a test begins."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    return root


@pytest.mark.rule("CL-128")
def test_a_log_line_takes_the_place_of_the_progress_line_which_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    root, terminal = bare_root(monkeypatch), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with logging_with_progress(lambda: "3 done", quiet=False):
        logging.getLogger("sharegroups.worker").info("stopping")
    said = terminal.getvalue()
    assert "\x1b[2K" in said
    assert "INFO stopping\n" in said
    assert said.endswith("3 done\n")
    assert root.handlers == []


def test_without_a_terminal_and_when_quiet_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_root(monkeypatch)
    for stream, quiet in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with logging_with_progress(lambda: "3 done", quiet):
            logging.getLogger("sharegroups.worker").warning("late")
        assert "3 done" not in stream.getvalue()
        assert "WARNING late\n" in stream.getvalue()


def test_a_programs_own_logging_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    root, own = bare_root(monkeypatch), logging.NullHandler()
    root.handlers.append(own)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with logging_with_progress(lambda: "3 done", quiet=False):
        assert root.handlers == [own]
