"""Where the password of a user's own store could be visible from outside: process lists, messages, logs, and files."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin
from tests.support.node import TERMINATED, StartedProcess, up_words
from tests.support.stores import Server

PASSWORD = "geheim-4711"
VARIABLE = "THE_STORES_PASSWORD"


@pytest.fixture
def store() -> Iterator[Server]:
    """An empty store that requires a password."""
    server = Server()
    asyncio.run(server.start())
    asyncio.run(server.run(("CONFIG", "SET", "requirepass", PASSWORD)))
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


def process_list(of: int) -> list[str]:
    """Return the command lines of a process and its descendants, as `ps` shows them to every user."""
    found = [Path(f"/proc/{of}/cmdline").read_bytes().replace(b"\0", b" ").decode()]
    for task in Path(f"/proc/{of}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += process_list(int(child))
    return found


@pytest.mark.rule("CM-61a")
@pytest.mark.parametrize("processes", [True, False])
def test_a_password_in_a_variable_is_seen_nowhere(tmp_path: Path, store: Server, processes: bool) -> None:
    address = f"redis://127.0.0.1:{store.port}"
    options = ["--store", address, "--password-env", VARIABLE, "--init", "--log-level", "debug"]
    words = up_words(tmp_path / "data", None, *options, *(["--processes"] if processes else []))
    node = StartedProcess(words, tmp_path, {VARIABLE: PASSWORD})
    try:
        ready = json.loads(node.first_line())
        with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
            assert len(admin.describe_cluster().nodes) == (3 if processes else 1)
        listed = process_list(node.pid)
        assert len(listed) == (4 if processes else 1)
        assert not [line for line in listed if PASSWORD in line]
        assert ready["store"] == address
    finally:
        assert node.stop() == TERMINATED
    assert PASSWORD not in node.errors


@pytest.mark.rule("CM-61a")
def test_a_password_in_the_argument_goes_no_further_and_is_warned_of(tmp_path: Path, store: Server) -> None:
    options = ["--store", f"redis://:{PASSWORD}@127.0.0.1:{store.port}/0", "--init", "--processes"]
    node = StartedProcess(up_words(tmp_path / "data", None, *options), tmp_path)
    try:
        ready = json.loads(node.first_line())
        _own, *children = process_list(node.pid)
        assert len(children) == 3
        assert not [line for line in children if PASSWORD in line]
        assert ready["store"] == f"redis://127.0.0.1:{store.port}/0"
    finally:
        assert node.stop() == TERMINATED
    (line,) = node.errors.splitlines()
    assert "--password-env" in json.loads(line)["try_next"]
    assert PASSWORD not in line


@pytest.mark.rule("CM-61a")
def test_a_role_that_finds_no_cluster_shows_no_password(tmp_path: Path, store: Server) -> None:
    """As on the first start on Kubernetes, before the job that creates the cluster has run."""
    url = f"redis://:{PASSWORD}@127.0.0.1:{store.port}"
    role = StartedProcess(
        ["share_node", "serve", "partition_leader", "listen.port=0"], tmp_path, {"SHAREGROUPS_STORE_URL": url}
    )
    try:
        for _ in range(600):
            if "cluster" in role.errors:
                break
            asyncio.run(asyncio.sleep(0.1))
    finally:
        role.kill()
    assert f"redis://***@127.0.0.1:{store.port}" in role.errors
    assert PASSWORD not in role.errors


def test_a_settings_file_reaches_the_processes_too(tmp_path: Path) -> None:
    """Only the parent used to read `--config`: a log level set there did not apply to its children."""
    (tmp_path / "file.toml").write_text('"log.level" = "debug"\n')
    words = [
        word for word in up_words(tmp_path / "data", None, "--processes") if word not in ("--log-level", "warning")
    ]
    node = StartedProcess([*words, "--config", str(tmp_path / "file.toml")], tmp_path)
    try:
        node.first_line()
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in _children(node.pid)]
    finally:
        node.stop()
    roles = [each for each in environments if b"SHAREGROUPS_STORE_URL=" in each]
    assert len(roles) == 3
    assert all(f"SHAREGROUPS_CONFIG={tmp_path / 'file.toml'}".encode() in each for each in roles)


def _children(of: int) -> list[str]:
    return [child for task in Path(f"/proc/{of}/task").iterdir() for child in (task / "children").read_text().split()]
