"""The data directory: it has one owner, and a record of earlier incarnations."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

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


@pytest.fixture(params=[0o000, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """A umask of the process: the widest, the usual narrow one, and one that denies the owner permissions."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Return the modes of a directory and of everything in it."""
    return {
        str(path.relative_to(root.parent)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in [root, *root.rglob("*")]
    }


def private(root: Path) -> dict[str, str]:
    """Return the modes that `modes` should return: 0700 for directories, 0600 for files."""
    return {
        str(path.relative_to(root.parent)): oct(0o700 if path.is_dir() else 0o600) for path in [root, *root.rglob("*")]
    }


@pytest.mark.rule("CM-185")
@pytest.mark.usefixtures("umask")
def test_what_is_made_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "new" / "data")
    directory.identity("node-a")
    directory.lock("up").acquire("the test")
    directory.remember("cluster-id", "c1")
    found = modes(tmp_path / "new")
    assert found == private(tmp_path / "new")
    assert len(found) == 7


@pytest.mark.rule("CM-185")
def test_a_directory_of_an_earlier_version_is_narrowed_and_reported_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in (data, data / "nodes", data / "store", data / "store" / "appendonlydir"):
        folder.mkdir()
        folder.chmod(0o755)
    for file in ("cluster-id", "store.log", "nodes/up.lock", "store/appendonlydir/appendonly.aof.1.incr.aof"):
        (data / file).write_text("kept")
        (data / file).chmod(0o666)
    with capture_logs() as lines:
        DataDirectory(data).keep_private()
        DataDirectory(data).keep_private()
    assert modes(data) == private(data)
    assert (data / "cluster-id").read_text() == "kept"
    (line,) = lines
    assert (line["event"], line["mode"], line["entries_narrowed"]) == ("data_directory_narrowed", "0755", 7)


@pytest.mark.rule("CM-185")
def test_files_that_no_other_user_could_reach_are_narrowed_without_a_word(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.remember("cluster-id", "c1")
    (directory.path / "cluster-id").chmod(0o644)
    with capture_logs() as lines:
        directory.keep_private()
    assert modes(directory.path) == private(directory.path)
    assert lines == []


@pytest.mark.rule("CM-185")
def test_a_directory_that_holds_something_else_keeps_its_mode(tmp_path: Path) -> None:
    """For example a home directory given as --data: others may need to enter it."""
    tmp_path.chmod(0o755)
    other = tmp_path / "letters.txt"
    other.write_text("mine")
    other.chmod(0o644)
    (tmp_path / "store").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o755)
    directory = DataDirectory(tmp_path)
    directory.remember("cluster-id", "c1")
    (tmp_path / "cluster-id").chmod(0o644)
    with capture_logs() as lines:
        directory.keep_private()
        directory.keep_private()
    found = modes(tmp_path)
    name = tmp_path.name
    assert (found[name], found[f"{name}/letters.txt"], found[f"{name}/elsewhere"]) == ("0o755", "0o644", "0o755")
    assert (found[f"{name}/cluster-id"], found[f"{name}/nodes"]) == ("0o600", "0o700")
    (line,) = lines
    assert line["event"] == "data_directory_shared"
    assert "something else" in line["cause"]


@pytest.mark.rule("CM-185")
def test_a_directory_of_another_user_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a volume that Kubernetes mounts, which belongs to root."""
    directory = DataDirectory(tmp_path / "data")
    directory.path.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: directory.path.stat().st_uid + 1)
    with capture_logs() as lines:
        directory.keep_private()
    assert modes(directory.path)["data"] == "0o777"
    assert "belongs to user" in lines[0]["cause"]
