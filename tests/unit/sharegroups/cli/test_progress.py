"""The worker's log, and the progress line that a person sees below it."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from sharegroups.cli.progress import _Handler, logging_with_progress


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def seen(written: str) -> list[str]:
    """The lines on the screen, without cleared ones and without the times of log lines."""
    lines = [line.rpartition("\r\x1b[2K")[2] for line in written.split("\n")]
    return [re.sub(r"^\S+ (?=[A-Z]+ )", "", line) for line in lines if line]


def bare_root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The root logger of a program without logging setup; pytest adds its own handlers when a test starts."""
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


@pytest.mark.rule("CL-128")
def test_what_a_handler_prints_takes_the_place_of_the_progress_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_root(monkeypatch)
    terminal = Terminal()  # both streams are the same terminal, as for a person
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    log = logging.getLogger("sharegroups.worker")
    with logging_with_progress(lambda: "3 done", quiet=False):
        log.info("begun")
        print("mail", "to t1")
        print("amid a line", end="")
        log.info("late")
        sys.stdout.writelines(["a\n", "b\n"])
        assert sys.stdout.isatty()
    assert sys.stdout is terminal
    lines = seen(terminal.getvalue())
    assert lines[-1] == "3 done"
    assert [line for line in lines if line != "3 done"] == [
        "INFO begun", "mail to t1", "amid a line", "INFO late", "a", "b"
    ]  # fmt: skip


def test_a_line_that_is_not_ended_is_not_overwritten_by_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_root(monkeypatch)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = _Handler(lambda: "3 done", shows=True)
    handler.print(terminal, "half")
    handler.show()
    assert seen(terminal.getvalue()) == ["half"]
    handler.print(terminal, " and whole\n")
    handler.show()
    assert seen(terminal.getvalue()) == ["half and whole", "3 done"]


def test_output_that_goes_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_root(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with logging_with_progress(lambda: "3 done", quiet=False):
        assert sys.stdout is file


def test_without_a_terminal_and_when_quiet_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_root(monkeypatch)
    for stream, quiet in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with logging_with_progress(lambda: "3 done", quiet, "console"):
            logging.getLogger("sharegroups.worker").warning("late")
        assert "3 done" not in stream.getvalue()
        assert "WARNING late\n" in stream.getvalue()


def test_a_programs_own_logging_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    root, own = bare_root(monkeypatch), logging.NullHandler()
    root.handlers.append(own)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with logging_with_progress(lambda: "3 done", quiet=False):
        assert root.handlers == [own]
