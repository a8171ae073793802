"""The data directory: it has one owner, and a record of earlier incarnations."""

import os
import shutil
from pathlib import Path

import pytest

from share_node.store.data_directory import DataDirectory, DataDirectoryError


@pytest.mark.rule("CM-1", "CM-12", "CM-73")
def test_a_restarted_name_knows_its_earlier_incarnations(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    first = directory.identity("node-a")
    first.release()
    second = directory.identity("node-a")
    assert second.dead == {first.incarnation}
    assert second.incarnation not in second.dead
    second.release()
    assert directory.identity("node-a").dead == {first.incarnation, second.incarnation}


@pytest.mark.rule("CM-12")
def test_a_second_process_of_a_name_is_refused_and_learns_who_holds_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    held = directory.identity("node-a")
    with pytest.raises(DataDirectoryError, match=r"in use by process \d+, node node-a.*--data DIR"):
        DataDirectory(tmp_path).identity("node-a")
    held.release()
    DataDirectory(tmp_path).identity("node-a").release()


@pytest.mark.rule("CM-12", "CM-73")
def test_a_copied_directory_declares_no_node_dead(tmp_path: Path) -> None:
    """The original's node may be alive and serve the same store: its leases must run to their end."""
    held = DataDirectory(tmp_path / "original").identity("node-a")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert DataDirectory(tmp_path / "copy").identity("node-a").dead == frozenset()
    held.release()
    (tmp_path / "original").rename(tmp_path / "moved")
    assert DataDirectory(tmp_path / "moved").identity("node-a").dead == {held.incarnation}


@pytest.mark.rule("CM-12")
def test_a_torn_ledger_declares_no_member_dead(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.identity("node-a").release()
    (tmp_path / "nodes" / "node-a.json").write_text("{torn")
    assert directory.identity("node-a").dead == frozenset()


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match=r"cannot create data directory .*--data DIR"):
        DataDirectory(tmp_path / "file" / "data")


@pytest.mark.rule("CM-20")
def test_two_processes_may_remember_the_same_thing_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process writes the whole file while the first one is in the middle of it."""
    directory = DataDirectory(tmp_path)
    fsync = os.fsync

    def overtaken(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        DataDirectory(tmp_path).remember("cluster-id", "c1")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", overtaken)
    directory.remember("cluster-id", "c1")
    assert directory.remembered("cluster-id") == "c1"
    assert {path.name for path in tmp_path.iterdir()} == {"cluster-id", "nodes"}
