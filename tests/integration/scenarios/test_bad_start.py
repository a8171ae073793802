"""Reasons why a process does not start: the message that a user sees, and that nothing half-done remains."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import redis

from sharegroups import Admin
from tests.support.node import TERMINATED, Cluster, StartedProcess, up_words
from tests.support.ports import free_port
from tests.support.stores import Server


@pytest.fixture
def store() -> Iterator[Server]:
    """An empty, usable store of the user's own."""
    server = Server()
    asyncio.run(server.start())
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StartedProcess, int]]:
    """A process whose store does not exist. It waits while the other tests in this file run."""
    folder, port = tmp_path_factory.mktemp("lonely"), free_port()
    process = StartedProcess(up_words(folder / "data", None, "--store", f"redis://127.0.0.1:{port}"), folder)
    yield process, port
    process.kill()


def _url(store: Server) -> str:
    return f"redis://127.0.0.1:{store.port}"


def _refusals(folder: Path, *attempts: Sequence[str]) -> list[str]:
    """Return the messages of processes that must fail to start; they run in parallel."""
    processes = [StartedProcess(words, folder) for words in attempts]
    try:
        return [_message(process) for process in processes]
    finally:
        for process in processes:
            process.kill()


def _refused(folder: Path, *words: str) -> str:
    (message,) = _refusals(folder, words)
    return message


def _message(process: StartedProcess) -> str:
    """Return the process's only error message."""
    assert process.ended() == 1
    assert "Traceback" not in process.errors
    assert process.errors.count("Error: ") == 1
    return process.errors[process.errors.index("Error: ") :].strip()


def _starts(folder: Path, *options: str) -> None:
    """Assert that the same directory serves afterwards, and can be stopped."""
    process = StartedProcess(up_words(folder / "data", None, *options), folder)
    process.first_line()
    assert process.stop() == TERMINATED


def _keys(store: Server) -> list[bytes]:
    with redis.Redis(port=store.port) as client:
        return list(client.scan_iter())


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = _refused(tmp_path, *up_words(tmp_path / "data", None, "--port", str(port)))
    assert f"cannot listen on 127.0.0.1:{port}" in message
    assert "Choose another port, or 0" in message
    # The store has ended and its locks are free: the same directory serves.
    _starts(tmp_path)


@pytest.mark.rule("CM-20")
def test_a_taken_port_leaves_no_node_in_the_cluster(tmp_path: Path, store: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _refused(tmp_path, *up_words(tmp_path / "data", None, "--port", port, "--store", _url(store), "--init"))
    assert _keys(store) == [b"{meta}:cluster"]


@pytest.mark.rule("CM-73")
def test_a_data_directory_that_another_process_owns(tmp_path: Path, cluster: Cluster) -> None:
    message = _refused(tmp_path, *up_words(cluster.folder / "data"))
    assert f"data directory {cluster.folder.resolve() / 'data'} is in use by process {cluster.node.pid}" in message
    assert "--data DIR" in message
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert len(admin.describe_cluster().nodes) == 1


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    """Such settings are reported before anything is created."""
    reported = {
        "group.share.delivery.count.limt=3": "Did you mean 'group.share.delivery.count.limit'?",
        "group.share.delivery.count.limit=99": "it must be at most 10",
        "group.share.heartbeat.interval.ms=50000": "must be between group.share.min.heartbeat.interval.ms=5000 and",
    }
    attempts = [up_words(tmp_path / "data", None, "--set", setting) for setting in reported]
    for words, message in zip(reported.values(), _refusals(tmp_path, *attempts), strict=True):
        assert words in message
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("CM-73")
def test_what_is_wrong_with_the_settings_is_reported_before_who_owns_the_directory(
    tmp_path: Path, cluster: Cluster
) -> None:
    owned = cluster.folder / "data"
    setting, store, host = _refusals(
        tmp_path,
        up_words(owned, None, "--set", "group.share.delivery.count.limit=99"),
        up_words(owned, None, "--store", "localhost:6379"),
        up_words(owned, None, "--host", "0.0.0.0"),
    )
    assert "it must be at most 10" in setting
    assert "try redis://localhost:6379" in store
    assert "without TLS" in host


@pytest.mark.rule("SR-20")
def test_only_findings_that_exist_can_be_allowed(tmp_path: Path) -> None:
    message = _refused(tmp_path, *up_words(tmp_path / "data", None, "--allow", "nonsense"))
    assert "'nonsense' is not one of 'appendfsync', 'appendonly', 'default-user', 'maxmemory-policy'" in message
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("CM-70")
def test_the_last_line_shows_what_a_role_process_could_not_do(tmp_path: Path) -> None:
    """Even with other log lines: one message, at the end."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = up_words(tmp_path / "data", None, "--processes", "--port", str(port), "--log-level", "info")
        message = _refused(tmp_path, *words)
    assert message.startswith(f"Error: group_coordinator: cannot listen on 127.0.0.1:{port}")
    assert "\n" not in message


def test_a_taken_port_for_metrics(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = _refused(tmp_path, *up_words(tmp_path / "data", {"metrics.port": str(port)}))
    assert f"cannot listen on 127.0.0.1:{port} for metrics" in message


@pytest.mark.rule("CM-20")
def test_a_store_that_wants_another_password(tmp_path: Path, store: Server) -> None:
    with redis.Redis(port=store.port) as client:
        client.config_set("requirepass", "secret")
    none, wrong = _refusals(
        tmp_path,
        up_words(tmp_path / "a", None, "--store", _url(store), "--init"),
        up_words(tmp_path / "b", None, "--store", f"redis://:wrong@127.0.0.1:{store.port}", "--init"),
    )
    assert "was given none (NOAUTH)" in none
    assert "refuses the user or the password it was given (WRONGPASS)" in wrong
    assert "redis://:PASSWORD@HOST:PORT" in wrong
    assert "no connection within" not in none + wrong


@pytest.mark.rule("CM-60", "CM-10")
def test_an_address_or_a_store_that_cannot_be(tmp_path: Path) -> None:
    reachable, store, unknown, nameless = _refusals(
        tmp_path,
        up_words(tmp_path / "a", None, "--host", "0.0.0.0"),
        up_words(tmp_path / "b", None, "--store", "http://127.0.0.1:1"),
        ["share_node", "serve", "partition_leader", "lisen.port=1"],
        ["share_node", "serve", "partition_leader", "listen.port"],
    )
    assert "listening on 0.0.0.0 without TLS" in reachable
    assert "allow.plaintext=true" in reachable
    assert "store URL" in store
    assert "Unknown setting: lisen.port. Did you mean 'listen.port'?" in unknown
    assert "not name=value" in nameless


@pytest.mark.rule("CM-1")
def test_an_address_that_stands_for_all_of_a_machine_is_not_given_to_others(tmp_path: Path, store: Server) -> None:
    """Clients that requested the node's address would have called their own machine."""
    plain = ["allow.plaintext=true", f"store.url={_url(store)}"]
    up, four, six, reported = _refusals(
        tmp_path,
        up_words(tmp_path / "a", {"allow.plaintext": "true"}, "--host", "0.0.0.0"),
        ["share_node", "serve", "group_coordinator", "listen.host=0.0.0.0", *plain],
        ["share_node", "serve", "share_coordinator", "listen.host=::", *plain],
        ["share_node", "serve", "partition_leader", "listen.host=127.0.0.1", "advertised.host=0.0.0.0", *plain],
    )
    for message in (up, four):
        assert "listen.host is 0.0.0.0, and clients and other nodes would call this node there" in message
        assert "Try advertised.host=NAME, or the variable SHAREGROUPS_ADVERTISED_HOST" in message
    assert "listen.host is ::, and" in six
    assert "advertised.host is 0.0.0.0, and" in reported
    assert not (tmp_path / "a").exists()
    settings = {"allow.plaintext": "true", "advertised.host": "127.0.0.1"}
    node = StartedProcess(up_words(tmp_path / "b", settings, "--host", "0.0.0.0"), tmp_path)
    try:
        assert json.loads(node.first_line())["bootstrap"].startswith("127.0.0.1:")
    finally:
        assert node.stop() == TERMINATED


@pytest.mark.rule("CM-20")
def test_a_store_without_a_cluster(tmp_path: Path, store: Server) -> None:
    """A role that is started alone waits instead: tests/integration/share_node/test_waiting.py."""
    message = _refused(tmp_path, *up_words(tmp_path / "data", None, "--store", _url(store)))
    assert f"store {_url(store)} holds no cluster" in message
    assert "--init" in message
    assert _keys(store) == []
    _starts(tmp_path, "--store", _url(store), "--init")


@pytest.mark.rule("SR-20", "CM-20")
def test_a_store_that_would_lose_data_is_refused_unless_allowed(tmp_path: Path, store: Server) -> None:
    with redis.Redis(port=store.port) as client:
        client.config_set("appendonly", "no")
        client.config_set("maxmemory-policy", "allkeys-lru")
    words = ["--store", _url(store), "--init"]
    message = _refused(tmp_path, *up_words(tmp_path / "data", None, *words))
    assert "appendonly is no, expected yes" in message
    assert "maxmemory-policy is allkeys-lru, expected noeviction" in message
    assert message.count("CONFIG SET") == 2
    one = _refused(tmp_path, *up_words(tmp_path / "data", None, *words, "--allow", "appendonly"))
    assert "appendonly" not in one
    assert "[maxmemory-policy]" in one
    assert _keys(store) == []
    _starts(tmp_path, *words, "--allow", "appendonly", "--allow", "maxmemory-policy")


@pytest.mark.rule("CM-20")
def test_a_store_of_another_cluster_or_a_wiped_one(tmp_path: Path, store: Server) -> None:
    words = ["--store", _url(store)]
    _starts(tmp_path, *words, "--init")
    with redis.Redis(port=store.port) as client:
        ours = client.get("{meta}:cluster")
        assert isinstance(ours, bytes)
        client.flushall()
        wiped = _refused(tmp_path, *up_words(tmp_path / "data", None, *words))
        assert f"holds no cluster id, expected {ours.decode()}" in wiped
        assert "--init" in wiped
        assert _keys(store) == []
        client.set("{meta}:cluster", "another")
        other = _refused(tmp_path, *up_words(tmp_path / "data", None, *words))
        assert f"belongs to cluster another, expected {ours.decode()}" in other
        assert "--data" in other
        assert _keys(store) == [b"{meta}:cluster"]


@pytest.mark.rule("CM-20")
def test_an_embedded_store_that_was_wiped_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    _starts(tmp_path)
    shutil.rmtree(tmp_path / "data" / "store")
    assert "it is empty or was wiped" in _refused(tmp_path, *up_words(tmp_path / "data"))
    _starts(tmp_path, "--init")


def test_a_store_that_is_not_there(lonely: tuple[StartedProcess, int]) -> None:
    process, port = lonely
    message = _message(process)
    assert "no connection within 10000 ms" in message
    assert f"127.0.0.1:{port}" in message
    assert "Start one (`valkey-server --appendonly yes" in message
    assert "[unreachable]" in message
