"""The process between a node and its embedded store: it ends when the store ends, or ends the store."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from share_node.store import store_watcher

ENDS = "raise SystemExit(7)"
STAYS = "import time; time.sleep(3600)"


def watched(program: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["watcher", "3600", sys.executable, "-I", "-S", "-c", program])
    return store_watcher.main()


def test_a_store_that_ends_by_itself_gives_its_status(
    parent: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(ENDS, monkeypatch) == 7
    assert int(capsys.readouterr().out) > 0, "the store's process id"
    os.close(parent)


def test_a_store_ends_when_the_parent_has_ended(parent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    os.write(parent, b"alive")
    os.close(parent)
    assert watched(STAYS, monkeypatch) == -15


def test_the_parent_reads_the_process_id_while_the_store_runs() -> None:
    """It reads a pipe, and for a pipe Python would otherwise buffer the line until the watcher ends."""
    words = [sys.executable, "-I", "-S", store_watcher.__file__, "10", sys.executable, "-I", "-S", "-c", STAYS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        ready, _, _ = select.select([watcher.stdout], [], [], 30)
        running = watcher.poll() is None
        watcher.stdin.close()
        assert ready == [watcher.stdout], "nothing came in 30 s"
        assert running
        assert int(watcher.stdout.readline()) > 0
    assert watcher.returncode == -signal.SIGTERM % 256
