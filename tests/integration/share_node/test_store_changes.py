"""A role whose store changes while it runs: a replica disappears, the password is changed."""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.rpc.server import READINESS
from sharegroups import Admin, Producer, ShareConsumer
from tests.integration.share_node.test_waiting import make_cluster, running
from tests.support.node import BOUND_S, StartedProcess, up_words
from tests.support.ports import free_port
from tests.support.stores import Server

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    await make_cluster(server)
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


def _gauges(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("sharegroups_store_replicas_")}


async def _until_connected(port: int, expected: float | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(BOUND_S * 10):
        found = await asyncio.to_thread(_gauges, port)
        if found.get("sharegroups_store_replicas_connected") == expected:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"expected {expected} connected replicas, found {found}")


@pytest.mark.rule("CM-131")
async def test_a_replica_of_the_store_that_goes_is_seen_in_the_metrics(tmp_path: Path, store: Server) -> None:
    """The alert ShareGroupsStoreReplicaGone compares the two numbers; while the store is unreachable, none is
    reported."""
    replica = Server("--replicaof", "127.0.0.1", str(store.port))
    await replica.start()
    port = free_port()
    try:
        async with running(tmp_path, store, STORE_REPLICAS="1", METRICS_PORT=str(port)) as role:
            await role.until_serving(READINESS)
            assert (await _until_connected(port, 1))["sharegroups_store_replicas_configured"] == 1
            replica.stop()
            assert (await _until_connected(port, 0))["sharegroups_store_replicas_configured"] == 1
            store.stop()
            assert (await _until_connected(port, None))["sharegroups_store_replicas_configured"] == 1
    finally:
        replica.stop()
        shutil.rmtree(replica.folder, ignore_errors=True)


@pytest.mark.rule("CM-130")
async def test_a_password_is_changed_by_adding_it_restarting_and_taking_the_old_one_away(
    tmp_path: Path, store: Server
) -> None:
    """As docs/howto/deploy.md describes it: every role always has a password that the store accepts."""
    await store.run(("ACL", "SETUSER", "default", "resetpass", ">old"))

    async def admin(*words: str) -> None:
        connection = await open_store(urls["old"]).connect("")
        try:
            assert await connection.run([("ACL", "SETUSER", "default", *words)], 5_000) == [b"OK"]
        finally:
            await connection.close()

    urls = {word: f"redis://:{word}@127.0.0.1:{store.port}" for word in ("old", "new")}
    async with (
        running(tmp_path, store, "share_coordinator", STORE_URL=urls["old"], NODE_NAME="a") as first,
        running(tmp_path, store, "group_coordinator", STORE_URL=urls["old"], NODE_NAME="b") as second,
    ):
        await first.until_serving(READINESS)
        await second.until_serving(READINESS)
        await admin(">new")
        assert await asyncio.to_thread(first.process.stop) == 0
        async with running(tmp_path, store, "share_coordinator", STORE_URL=urls["new"], NODE_NAME="a") as third:
            await third.until_serving(READINESS)
            assert second.alive, "one with the old password goes on beside it"
            assert await asyncio.to_thread(second.process.stop) == 0
            await admin("<old")
            async with running(tmp_path, store, "group_coordinator", STORE_URL=urls["old"], NODE_NAME="b") as late:
                assert await asyncio.to_thread(late.process.ended) == 1, (
                    "and the restart that reads the secret mends it"
                )
            async with running(tmp_path, store, "group_coordinator", STORE_URL=urls["new"], NODE_NAME="b") as fourth:
                await fourth.until_serving(READINESS)
                assert third.alive


@pytest.mark.rule("CM-182", "CM-19")
async def test_a_store_that_is_restarted_under_way_and_loads_slowly_costs_no_record(tmp_path: Path) -> None:
    """The store answers LOADING for longer than a lease: records produced before and during that time are stored
    once."""
    store = Server()
    await store.start()
    node = StartedProcess(
        up_words(tmp_path / "data", {}, "--store", f"redis://127.0.0.1:{store.port}", "--init"), tmp_path
    )
    restarting: asyncio.Task[None] | None = None
    try:
        bootstrap = json.loads(await asyncio.to_thread(node.first_line))["bootstrap"]
        with Admin(bootstrap_servers=bootstrap) as admin:
            await asyncio.to_thread(admin.create_topics, ["t"])
        for start in range(0, 8_000, 1_000):
            await store.run(*[("SET", f"filler:{number}", "x") for number in range(start, start + 1_000)])
        stored: list[str] = []
        refused: list[object] = []

        def noted(error: object, report: object) -> None:
            (refused.append(error) if error else stored.append(str(report)))

        with Producer(bootstrap_servers=bootstrap, delivery_timeout_ms=300_000) as producer:
            producer.produce("t", "before", on_delivery=noted)
            await asyncio.to_thread(producer.flush)
            store.stop()
            store._options = ("--key-load-delay", "1500")  # about 12 s; it answers LOADING every 1,024 commands
            restarting = asyncio.create_task(store.start())
            producer.produce("t", "meanwhile", on_delivery=noted)
            await asyncio.to_thread(producer.flush)
            assert restarting.done(), "it was confirmed before the store had its data"
        assert (len(stored), refused) == (2, [])

        def consumed() -> list[str]:
            with ShareConsumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
                consumer.subscribe(["t"])
                seen: list[str] = []
                while len(seen) < 2:
                    messages = consumer.poll(BOUND_S)
                    assert messages
                    seen += [message.value().decode() for message in messages]
                return seen

        assert await asyncio.to_thread(consumed) == ["before", "meanwhile"]
    finally:
        if restarting is not None:
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)
        await asyncio.to_thread(node.kill)
        store.stop()
        shutil.rmtree(store.folder, ignore_errors=True)
