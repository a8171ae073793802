"""The output of `backup` and `restore`, even when they are interrupted, and how soon an interruption stops them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shard_runtime.record_log.protocol import LogError
from share_node.backup import commands
from share_node.backup.restoring import check
from share_node.backup.segments import BackupFilesError
from share_node.backup.taking import Progress
from share_node.store.store_option import StoreChoice
from sharegroups.cli.main import main
from tests.unit.share_node.backup.test_restoring import backup


@pytest.mark.rule("CT-80")
def test_a_signal_before_the_restore_has_begun_to_listen_for_it_is_reported(
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


@pytest.mark.rule("CM-219")
@pytest.mark.parametrize("quiet", [False, True])
def test_an_error_of_the_store_says_which_store_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet: bool
) -> None:
    @contextlib.asynccontextmanager
    async def no_store(where: StoreChoice) -> AsyncIterator[str]:
        raise LogError("the store holds no cluster")
        yield

    monkeypatch.setattr(commands, "readable", no_store)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("SHAREGROUPS_BOOTSTRAP", raising=False)
    (tmp_path / "sharegroups" / "store").mkdir(parents=True)
    for where, named in (
        (["--store", "redis://u:hidden@h:1/0"], "redis://***@h:1/0"),
        (["--data", str(tmp_path / "data")], str(tmp_path / "data")),
        ([], str(tmp_path / "sharegroups")),
    ):
        result = CliRunner().invoke(main, ["backup", str(tmp_path / "new"), *where, *(["--quiet"] if quiet else [])])
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1] == f"Error: the store of {named}: the store holds no cluster"


@pytest.mark.parametrize("quiet", [False, True])
def test_without_a_store_a_backup_takes_the_data_that_up_has_by_default_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet: bool
) -> None:
    taken: list[Path | None] = []

    @contextlib.asynccontextmanager
    async def no_store(where: StoreChoice) -> AsyncIterator[str]:
        taken.append(where.data)
        raise LogError("no store")
        yield

    monkeypatch.setattr(commands, "readable", no_store)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("SHAREGROUPS_BOOTSTRAP", raising=False)
    words = ["backup", str(tmp_path / "new"), *(["--quiet"] if quiet else [])]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, taken) == (1, [])
    assert f"{tmp_path}/sharegroups, where `sharegroups up` keeps its data by default, has none" in result.stderr
    (tmp_path / "sharegroups" / "store").mkdir(parents=True)
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, taken) == (1, [tmp_path / "sharegroups"])
    said = "" if quiet else f"Saving the store of {tmp_path}/sharegroups; --store or --data names another.\n"
    assert result.stderr == f"{said}Error: the store of {tmp_path}/sharegroups: no store\n"
    CliRunner().invoke(main, [*words, "--data", str(tmp_path)])
    assert taken[1:] == [tmp_path]
    monkeypatch.setenv("SHAREGROUPS_BOOTSTRAP", "127.0.0.1:9092")
    assert ("SHAREGROUPS_BOOTSTRAP does not choose it." in CliRunner().invoke(main, words).stderr) is not quiet


def test_where_to_restore_must_be_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The store of `up` would be the wrong one for a rehearsal, and two clusters with the same id cannot be
    distinguished."""
    (tmp_path / "sharegroups" / "store").mkdir(parents=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["restore", str(backup(tmp_path / "b"))])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "give either --store URL or --data DIR" in result.stderr
    assert f"`sharegroups up` uses {tmp_path}/sharegroups, which must hold no data" in result.stderr


@pytest.mark.rule("CT-80", "CM-143")
def test_a_signal_amid_the_check_ends_it_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The check runs in a thread, which cannot be cancelled, so it polls whether it has been given up."""
    checked: list[float] = []

    def slow_check(_: Path, progress: Progress) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        while not progress.given_up:
            checked.append(time.monotonic())
            time.sleep(0.001)
        raise BackupFilesError("given up")

    monkeypatch.setattr(commands, "check", slow_check)
    result = CliRunner().invoke(main, ["restore", str(tmp_path), "--store", "redis://127.0.0.1:1", "--quiet"])
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted: nothing is changed\n")
    assert checked


@pytest.mark.rule("CT-80")
def test_a_check_that_was_given_up_reads_no_further(tmp_path: Path) -> None:
    progress = Progress(given_up=True)
    with pytest.raises(BackupFilesError, match="the check was given up"):
        check(backup(tmp_path), progress)
    assert (progress.done, progress.total) == (0, 1)
