"""The files and the socket of a real embedded store are its owner's alone (CM-185)."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, Producer
from tests.support.node import TERMINATED, StartedProcess, up_words


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of this process and of those that it starts."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def wide(root: Path) -> list[str]:
    """Return what in a directory other users could use, and what has another mode than 0700 or 0600."""
    found = []
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found.append(f"{path}: {mode:04o}")
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket has at most 107 characters."""
    made = Path(tempfile.mkdtemp(prefix="sg-"))
    yield made
    shutil.rmtree(made)


def listening_ports(pid: int) -> list[int]:
    """Return the TCP ports on which a process listens."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    ports = []
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = row.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                ports.append(int(local.rpartition(":")[2], 16))
    return ports


def started(data: Path, folder: Path) -> tuple[StartedProcess, dict[str, str]]:
    """Start `up` with the folder as its temporary directory; return it and its first line."""
    node = StartedProcess(up_words(data, None), folder, {"TMPDIR": str(folder)})
    return node, json.loads(node.first_line())


@pytest.mark.rule("CM-185", "CM-70")
@pytest.mark.usefixtures("umask")
def test_all_that_an_embedded_store_makes_is_its_owners_alone(folder: Path) -> None:
    """Shows the embedded store and the place of its data (CM-70), not how soon it is ready, its output, or Ctrl-C."""
    data = folder / "share" / "data"
    node, ready = started(data, folder)
    try:
        with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
            assert admin.create_topics(["jobs"]) == {"jobs": None}
        with Producer(bootstrap_servers=ready["bootstrap"]) as producer:
            producer.send("jobs", b"kept")
        (sockets,) = folder.glob("sharegroups-*")
        assert {path.name for path in sockets.iterdir()} == {"store.sock", "data-directory"}
        assert ready["store"] == f"unix://{sockets}/store.sock"
        assert list((data / "store").rglob("*.aof"))
        assert wide(folder / "share") + wide(sockets) == []
        assert listening_ports(int(ready["store_pid"])) == []
        assert listening_ports(node.pid)
    finally:
        assert node.stop() == TERMINATED
    assert wide(folder / "share") == []


@pytest.mark.rule("CM-185")
def test_the_data_of_an_earlier_version_is_narrowed_and_served(folder: Path) -> None:
    data = folder / "data"
    node, ready = started(data, folder)
    try:
        with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
            assert admin.create_topics(["jobs"]) == {"jobs": None}
    finally:
        assert node.stop() == TERMINATED
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    node, ready = started(data, folder)
    try:
        with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
            assert "jobs" in admin.list_topics()
        assert wide(data) == []
    finally:
        assert node.stop() == TERMINATED
    (line,) = [line for line in node.errors.splitlines() if "data_directory_narrowed" in line]
    assert json.loads(line)["mode"] == "0755"
