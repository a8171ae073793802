"""Programs on a store whose default user is off, each with exactly the permissions in docs/howto/deploy.md."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from shard_runtime.ownership.placement import ROLE_OF_KIND
from shard_runtime.record_log.redis.store_rights import acl_rules
from sharegroups import AcknowledgeType, AlterConfig, ConfigResource, NewTopic, TopicPartition
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.support.node import QUICK, TERMINATED, StartedProcess, ready_address, up_words
from tests.support.store_users import GuardedServer

BOUND_S = 60
VARIABLE = "THE_STORES_PASSWORD"
NODE = "sharegroups"
RECORDS = 200
#: Logs are compacted and trimmed within the test.
BUSY = {
    **QUICK,
    "shard.compaction.entries.min": "10",
    "shard.history.ms": "0",
    "group.share.auto.offset.reset": "earliest",
}


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[GuardedServer]:
    store = await GuardedServer().start()
    yield store
    store.stop()


def command(store: GuardedServer, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the store as a user."""
    words = (sys.executable, "-m", "share_node", *words, "--store", store.url(user), "--password-env", VARIABLE)
    environment = {**os.environ, VARIABLE: store.passwords[user]}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)


async def succeeds(store: GuardedServer, user: str, *words: str) -> str:
    """Run a command that must succeed without a refusal; return its output."""
    done = await asyncio.to_thread(command, store, user, *words)
    assert (done.returncode, await store.denied()) == (0, []), done.stderr
    return done.stdout + done.stderr


async def worked(bootstrap: str, then: list[int]) -> None:
    """Produce, also in transactions; accept and reject records, so that dead letters are written; kill the processes
    `then` halfway through; delete the group and the topic."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        letters = NewTopic("dlq.jobs", 1, {"errors.deadletterqueue.group.enable": "true"})
        made = await admin.create_topics([NewTopic("jobs", 4, {"retention.bytes": "1000"}), letters])
        assert set(made.values()) == {None}
        group = ConfigResource.group("workers")
        configs = [AlterConfig("errors.deadletterqueue.topic.name", "dlq.jobs")]
        assert await admin.incremental_alter_configs({group: configs}) == {group: None}
        await produced(bootstrap)
        await consumed(bootstrap, then)
        assert [one.transactional_id for one in await admin.list_transactions()] == ["tx"]
        assert await letters_of(admin) >= RECORDS // 10  # some twice, after a kill


async def produced(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS - 1):
            await producer.produce("jobs", b"%d" % number)
        assert await producer.flush(BOUND_S) == 0
    async with Producer(bootstrap_servers=bootstrap, transactional_id="tx") as producer:
        async with producer.transaction():
            await producer.produce("jobs", b"committed")
        with suppress(KeyError):
            async with producer.transaction():
                await producer.produce("jobs", b"aborted")
                await producer.flush(BOUND_S)
                raise KeyError


async def consumed(bootstrap: str, killed: list[int]) -> None:
    seen = 0
    deadline = time.monotonic() + BOUND_S
    async with ShareConsumer(
        bootstrap_servers=bootstrap, group_id="workers", share_acknowledgement_mode="explicit", max_poll_records=20
    ) as consumer:
        consumer.subscribe(["jobs"])
        while seen < RECORDS and time.monotonic() < deadline:
            for message in await consumer.poll(timeout=0.5):
                reject = (message.value() or b"").endswith(b"7")
                consumer.acknowledge(message, AcknowledgeType.REJECT if reject else AcknowledgeType.ACCEPT)
                seen += 1
            await consumer.commit_sync()
            while killed and seen > RECORDS / 4:
                os.kill(killed.pop(), signal.SIGKILL)
    assert seen >= RECORDS


async def letters_of(admin: Admin) -> int:
    """Wait for the dead letters; return how many there are."""
    letters = TopicPartition("dlq.jobs", 0)
    deadline, found = time.monotonic() + BOUND_S, 0
    while found < RECORDS // 10 and time.monotonic() < deadline:
        end = (await admin.list_offsets([letters]))[letters]
        found = end if isinstance(end, int) else found  # its leader may have been killed
        await asyncio.sleep(0.1)
    return found


@pytest.mark.asyncio
@pytest.mark.rule("CM-184")
async def test_a_cluster_and_its_commands_need_no_other_rights_than_the_page_lists(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    await succeeds(guarded, "sharegroups-init", "init")
    options = ["--store", guarded.url(NODE), "--password-env", VARIABLE, "--processes", "--leaders", "2"]
    words = up_words(tmp_path / "data", BUSY, *options)
    node = StartedProcess(words, tmp_path, {VARIABLE: guarded.passwords[NODE]})
    try:
        ready = json.loads(await asyncio.to_thread(node.first_line))
        await worked(ready["bootstrap"], [ready["pids"]["partition_leader-2"]])
        assert await guarded.denied() == []
        saved = str(tmp_path / "saved")
        await succeeds(guarded, "sharegroups-backup", "backup", saved, "--quiet")
        assert "0 findings" in await succeeds(guarded, "sharegroups-state", "state", "check")
        await succeeds(guarded, "sharegroups-state", "state", "dump", "--kind", "sgs")
        await succeeds(guarded, "sharegroups-state", "state", "skip", "--kind", "meta", "--entry", "1-1")
        async with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
            assert await admin.delete_share_groups(["workers"]) == {"workers": None}
            assert await admin.delete_topics(["jobs"]) == {"jobs": None}
        await until_deleted(guarded)
    finally:
        assert node.stop() == TERMINATED
    assert await guarded.denied() == []
    assert guarded.passwords[NODE] not in node.errors
    assert "store_password_exposed" not in node.errors
    await guarded.admin(("FLUSHALL",))
    await succeeds(guarded, "sharegroups-restore", "restore", saved, "--quiet")


async def until_deleted(store: GuardedServer) -> None:
    """Wait until the keys of a deleted topic are gone."""
    for _ in range(BOUND_S * 10):
        (left,) = await store.admin(("KEYS", "{tp:*:log"))
        if len(left) == 1:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"still there: {left}")


@pytest.mark.asyncio
@pytest.mark.rule("CM-184")
async def test_each_role_works_with_the_keys_of_its_own_shards_only(guarded: GuardedServer, tmp_path: Path) -> None:
    await succeeds(guarded, "sharegroups-init", "init")
    roles: list[StartedProcess] = []
    address = ""
    try:
        for kind, role in ROLE_OF_KIND.items():
            await guarded.allow(role, "on", f">{role}", *acl_rules([kind]))
            settings = {**BUSY, "listen.port": "0", "node.name": role, "store.fsync.always": "true"}
            words = ["share_node", "serve", role, *(f"{name}={value}" for name, value in settings.items())]
            url = f"redis://{role}:{role}@{guarded.address}"
            roles.append(StartedProcess(words, tmp_path, {"SHAREGROUPS_STORE_URL": url}))
            address = ready_address(await asyncio.to_thread(roles[-1].first_line))
        await worked(address, [])
    finally:
        assert [role.stop() for role in reversed(roles)] == [0, 0, 0]
    assert await guarded.denied() == []


@pytest.mark.asyncio
@pytest.mark.rule("CM-184")
async def test_a_node_without_a_right_ends_with_its_name_and_one_that_loses_a_right_says_so(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    await succeeds(guarded, "sharegroups-init", "init")
    settings = {**QUICK, "listen.port": "0", "node.name": "all", "store.fsync.always": "true", "log.format": "json"}
    roles = ",".join(ROLE_OF_KIND.values())
    words = ["share_node", "serve", roles, *(f"{name}={value}" for name, value in settings.items())]
    url = f"redis://{NODE}:{guarded.passwords[NODE]}@{guarded.address}"
    await guarded.allow(NODE, "-xtrim")
    refused = StartedProcess(words, tmp_path, {"SHAREGROUPS_STORE_URL": url})
    assert await asyncio.to_thread(refused.ended) == 1
    assert "'xtrim'" in refused.errors
    assert "ACL SETUSER sharegroups +xtrim" in refused.errors
    await guarded.allow(NODE, "+xtrim")
    node = StartedProcess(words, tmp_path, {"SHAREGROUPS_STORE_URL": url})
    try:
        bootstrap = ready_address(await asyncio.to_thread(node.first_line))
        async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
            assert await admin.create_topics(["jobs"]) == {"jobs": None}
            await producer.send("jobs", b"before")
            await guarded.allow(NODE, "-xadd")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("jobs", b"kept"), 3)
            await guarded.allow(NODE, "+xadd")
            await asyncio.wait_for(producer.send("jobs", b"after"), BOUND_S)
    finally:
        node.stop()
    assert "NOPERM User sharegroups has no permissions to run the 'xadd' command [give the store's user" in node.errors
    assert guarded.passwords[NODE] not in refused.errors + node.errors
