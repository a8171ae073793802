"""Ctrl-C ends every command quietly with status 130, whatever it is doing at the time."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sharegroups.cli import clients
from sharegroups.cli.interrupts import leaving_at_once
from sharegroups.cli.main import main


def _ends(program: str) -> tuple[int, str, str]:
    """Run a program as if from a terminal (a shell may let background programs ignore SIGINT); return its status and
    output."""
    terminal = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = [sys.executable, "-c", f"import os, signal, sharegroups.cli\n{terminal}\n{program}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.rule("CM-72")
def test_while_it_starts() -> None:
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sharegroups.cli.run()
"""
    assert _ends(program) == (130, "", "")


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize("module", ["grpc", "share_node.backup.commands"])
def test_a_restore_that_has_not_begun_says_so_even_when_an_import_swallows_the_signal(module: str) -> None:
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass
sys.meta_path.insert(0, Interrupting())
sys.argv = ["sharegroups", "restore", "nowhere", "--dry-run"]
sharegroups.cli.run()
"""
    assert _ends(program) == (130, "", "Interrupted: nothing is changed\n")


@pytest.mark.rule("CM-72")
def test_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(kind: object, settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clients, "open_client", interrupted)
    result = CliRunner().invoke(main, ["topics", "list"])
    assert (result.exit_code, result.output) == (130, "")
    monkeypatch.setattr("sharegroups.cli.topics.settings", interrupted)
    result = CliRunner().invoke(main, ["topics", "alter", "t", "--partitions", "2"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("kept", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_program_that_sees_to_it_itself_is_left_alone(kept: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, kept)
    try:
        with leaving_at_once():
            assert signal.getsignal(signal.SIGINT) is kept
        assert signal.getsignal(signal.SIGINT) is kept
    finally:
        signal.signal(signal.SIGINT, before)


def test_afterwards_it_raises_again() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with leaving_at_once():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
