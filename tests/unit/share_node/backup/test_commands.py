"""What `backup` and `restore` say when they are interrupted, and how soon they end then."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from share_node.backup import commands
from share_node.backup.restoring import check
from share_node.backup.segments import BackupFilesError
from share_node.backup.taking import Progress
from sharegroups.cli.main import main
from tests.unit.share_node.backup.test_restoring import backup


@pytest.mark.rule("CT-80")
def test_a_signal_before_the_restore_has_begun_to_listen_for_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", interrupted)
    for words, said in (
        (("restore", str(tmp_path), "--store", "redis://127.0.0.1:1"), "nothing is changed"),
        (("backup", str(tmp_path / "new"), "--store", "redis://127.0.0.1:1"), f"{tmp_path / 'new'} holds no backup"),
    ):
        result = CliRunner().invoke(main, words)
        assert (result.exit_code, result.stdout, result.stderr) == (130, "", f"Interrupted: {said}\n")


@pytest.mark.rule("CT-80", "CM-143")
def test_a_signal_amid_the_check_ends_it_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The check runs in a thread, which nobody can cancel: it looks whether it is still wanted."""
    looked: list[float] = []

    def slow_check(_: Path, progress: Progress) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        while not progress.given_up:
            looked.append(time.monotonic())
            time.sleep(0.001)
        raise BackupFilesError("given up")

    monkeypatch.setattr(commands, "check", slow_check)
    result = CliRunner().invoke(main, ["restore", str(tmp_path), "--store", "redis://127.0.0.1:1", "--quiet"])
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted: nothing is changed\n")
    assert looked


@pytest.mark.rule("CT-80")
def test_a_check_that_was_given_up_reads_no_further(tmp_path: Path) -> None:
    progress = Progress(given_up=True)
    with pytest.raises(BackupFilesError, match="the check was given up"):
        check(backup(tmp_path), progress)
    assert (progress.done, progress.total) == (0, 1)
