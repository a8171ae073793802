"""A store with users: what the check of a node's permissions finds, for each of them, and that it changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shard_runtime.clock import SystemClock
from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.record_log.redis.connection import Store
from shard_runtime.record_log.redis.startup_checks import StoreCheckError
from shard_runtime.record_log.redis.store_rights import acl_rules, check_rights
from shard_runtime.record_log.redis.topology import open_store
from share_node.node.process_store import open_clients
from share_node.store.cluster_init import init_cluster
from tests.support.store_users import GuardedServer

USER = "sharegroups"
EVERY = list(ShardKind)
#: Permissions without which a node still starts, and logs what it could not check.
DISPENSABLE = {"+acl|dryrun", "+client|setinfo", "+config|get"}
NEEDED = [rule for rule in acl_rules(EVERY) if rule not in DISPENSABLE]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded() -> AsyncIterator[GuardedServer]:
    store = await GuardedServer().start()
    yield store
    store.stop()


def opened(store: GuardedServer) -> Store:
    return open_store(f"redis://{USER}:{store.passwords[USER]}@{store.address}")


async def without(store: GuardedServer, rule: str) -> None:
    """Grant the user all documented permissions but one."""
    kept = [each for each in acl_rules(EVERY) if each != rule]
    await store.allow(USER, "reset", "on", f">{store.passwords[USER]}", *kept)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.rule("CM-184")
@pytest.mark.parametrize("rule", NEEDED)
async def test_each_right_that_is_missing_is_named_with_the_line_that_gives_it(
    guarded: GuardedServer, rule: str
) -> None:
    await without(guarded, rule)
    with pytest.raises(StoreCheckError) as refused:
        await check_rights(opened(guarded), EVERY)
    (finding,) = refused.value.findings
    assert finding.name == "credentials"
    assert "NOPERM" in finding.message
    user = USER if rule[0] == "+" else "USER"  # for a key, the store does not name the user
    assert f"ACL SETUSER {user} {rule}. docs/howto/deploy.md" in finding.message
    await guarded.allow(USER, rule)
    await check_rights(opened(guarded), EVERY)
    assert await guarded.admin(("DBSIZE",)) == [0], "the check must not write anything"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.rule("CM-184")
async def test_all_missing_rights_are_named_together(guarded: GuardedServer) -> None:
    await guarded.allow(USER, "reset", "on", f">{guarded.passwords[USER]}", "+multi", "+exec")
    with pytest.raises(StoreCheckError) as refused:
        await check_rights(opened(guarded), EVERY)
    given = str(refused.value).partition("ACL SETUSER sharegroups ")[2].partition(". docs")[0].split()
    await guarded.allow(USER, *given)
    with pytest.raises(StoreCheckError) as refused:  # the store reports a forbidden command first, then its key
        await check_rights(opened(guarded), EVERY)
    given = str(refused.value).partition("ACL SETUSER USER ")[2].partition(". docs")[0].split()
    await guarded.allow(USER, *given)
    await check_rights(opened(guarded), EVERY)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.rule("CM-184")
@pytest.mark.parametrize("kind", EVERY)
async def test_a_role_is_not_asked_for_the_keys_of_others(guarded: GuardedServer, kind: ShardKind) -> None:
    await guarded.allow(USER, "reset", "on", f">{guarded.passwords[USER]}", *acl_rules([kind]))
    await check_rights(opened(guarded), [kind])
    with pytest.raises(StoreCheckError, match="No permissions to access a key"):
        await check_rights(opened(guarded), EVERY)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.rule("CM-184")
async def test_a_start_says_which_right_is_missing(guarded: GuardedServer) -> None:
    """A node whose user may not read the store's settings does not start, unless an operator accepts that."""
    await without(guarded, "")
    settings = load_settings({"store.url": f"redis://{USER}:{guarded.passwords[USER]}@{guarded.address}"})
    await init_cluster(settings)
    await without(guarded, "+config|get")
    with pytest.raises(StoreCheckError, match=r"appendonly is not shown .*the right \+config\|get"):
        await open_clients(settings, SystemClock(), make_cluster=False)
    accepted = frozenset({"appendonly", "maxmemory-policy"})
    client = await open_clients(settings, SystemClock(), make_cluster=False, allow=accepted)
    await client.close()
    await without(guarded, "+info")
    with pytest.raises(StoreCheckError, match=r"INFO is refused: NOPERM .*'info' command \[give the store's user"):
        await open_clients(settings, SystemClock(), make_cluster=False)
    await guarded.admin(("FLUSHALL",))
