"""The process between a node and its embedded store: it ends when the store ends, or ends the store."""

from __future__ import annotations

import os
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
