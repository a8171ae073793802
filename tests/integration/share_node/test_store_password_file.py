"""The store's password in a file: rotated without a restart, and seen nowhere (CM-184, CM-61a)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.record_log.redis.store_rights import acl_rules
from sharegroups.aio import Admin, Producer
from tests.integration.share_node.test_store_password import process_list
from tests.support.node import QUICK, TERMINATED, StartedProcess, up_words
from tests.support.store_users import GuardedServer

USER = "sharegroups"
OLD, NEW = "geheim-alt-4711", "geheim-neu-4712"
BOUND_S = 60


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[GuardedServer]:
    store = await GuardedServer().start()
    await store.allow(USER, "reset", "on", f">{OLD}", *acl_rules(list(ShardKind)))
    yield store
    store.stop()


def words(store: GuardedServer, folder: Path) -> list[str]:
    """Return the arguments of `up` with several processes and the password's file."""
    settings = {**QUICK, "store.username": USER, "store.password.location": str(folder / "password")}
    return up_words(folder / "data", settings, "--store", f"redis://{store.address}", "--init", "--processes")


@pytest.mark.asyncio
@pytest.mark.rule("CM-184", "CM-61a")
async def test_a_password_is_rotated_without_a_restart_and_seen_nowhere(guarded: GuardedServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{OLD}\n")
    node = StartedProcess(words(guarded, tmp_path), tmp_path)
    try:
        first = await asyncio.to_thread(node.first_line)
        bootstrap = json.loads(first)["bootstrap"]
        async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
            assert await admin.create_topics(["jobs"]) == {"jobs": None}
            kill = ("CLIENT", "KILL", "USER", USER)
            file.write_text(NEW)  # too early: the store does not know it yet
            await guarded.admin(kill)
            await asyncio.wait_for(producer.send("jobs", b"with the old one"), BOUND_S)
            await guarded.allow(USER, f">{NEW}", f"<{OLD}")
            await guarded.admin(kill)
            await asyncio.wait_for(producer.send("jobs", b"with the new one"), BOUND_S)
        listed = process_list(node.pid)
        assert len(listed) == 4
    finally:
        assert node.stop() == TERMINATED
    assert "store_password_refused" in node.errors
    for shown in (first, node.errors, *listed):
        assert OLD not in shown
        assert NEW not in shown


@pytest.mark.asyncio
@pytest.mark.rule("CM-184", "CM-61a")
async def test_a_wrong_password_ends_the_start_and_is_not_shown(guarded: GuardedServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(NEW)
    node = StartedProcess([*words(guarded, tmp_path), "--log-level", "debug"], tmp_path)
    assert await asyncio.to_thread(node.ended) == 1
    assert "WRONGPASS" in node.errors
    assert f"store.password.location={tmp_path / 'password'}" in node.errors
    assert NEW not in node.errors
