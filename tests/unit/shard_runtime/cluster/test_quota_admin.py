"""AlterClientQuotas and DescribeClientQuotas on the in-memory store: what is stored, refused, listed and removed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog.testing

from kip932.acls import Acl, Operation, Permission, ResourceType
from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasRequest
from kip932.quotas import QuotaEntity
from shard_runtime.clock import Clock
from shard_runtime.cluster import metadata_codec, quota_admin
from shard_runtime.cluster.metadata import QuotaRemoved, QuotaSet, image_of
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.quota_admin import QuotaAdmin
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.status import RpcFailureError
from shard_runtime.rpc.table import RPCS
from tests.support.clocks import HandClock
from tests.twin import MemoryStore, memory_cluster_store

pytestmark = pytest.mark.asyncio

CALLER = CallContext("10.0.0.7", "c1", lambda: None, principal="User:root", client_id="admin-1")
ALICE = QuotaEntity("alice")
APP = QuotaEntity("alice", "app")
USERS = QuotaEntity("")
CLIENTS = QuotaEntity(None, "")
PRODUCE, CONSUME, MUTATE = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"


class Node:
    def __init__(self, log: MetadataLog) -> None:
        self.log = log
        self.admin = QuotaAdmin(log)
        self.caller = CALLER

    async def alter(self, changes: dict[Any, dict[str, float | None]], *, check_only: bool = False) -> list[str]:
        """Change quotas by entity, or by parts as a request has them; return the message of each, "" without one."""
        request = AlterClientQuotasRequest(validate_only=check_only)
        for entity, ops in changes.items():
            entry = request.entries.add()
            for kind, name in entity.parts if isinstance(entity, QuotaEntity) else entity:
                entry.entity.add(entity_type=kind, entity_name=name)
            for key, value in ops.items():
                entry.ops.add(key=key, value=value or 0, remove=value is None)
        response = await self.admin.alter_client_quotas(request, self.caller)
        assert [entry.entity for entry in response.entries] == [entry.entity for entry in request.entries]
        assert {entry.error_code for entry in response.entries} <= {0, 31, 42}
        assert all(bool(entry.error_code) == entry.HasField("error_message") for entry in response.entries)
        return [entry.error_message for entry in response.entries]

    async def listed(self, *components: tuple[str, int, str | None], strict: bool = False) -> list[QuotaEntity]:
        request = DescribeClientQuotasRequest(strict=strict)
        for kind, match_type, match in components:
            request.components.add(entity_type=kind, match_type=match_type, match=match)
        response = await self.admin.describe_client_quotas(request, self.caller)
        if response.error_code:
            raise AssertionError((response.error_code, response.error_message))
        names = [{one.entity_type: one.entity_name for one in entry.entity} for entry in response.entries]
        return [QuotaEntity(one.get("user"), one.get("client-id")) for one in names]


class World:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.memory = MemoryStore(clock)
        self.stores: list[ClusterStore] = []

    async def node(self, name: str = "a") -> Node:
        store = memory_cluster_store(self.memory, name, None)
        self.stores.append(store)
        await store.init_cluster("c")
        log = MetadataLog(store, self.clock, "c")
        await log.load()
        return Node(log)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World(HandClock())
    yield made
    for store in made.stores:
        await store.close()
    await made.memory.close()


@pytest.mark.rule("CM-191")
async def test_quotas_are_set_and_removed_in_one_version_and_other_nodes_read_them(world: World) -> None:
    node, other = await world.node("a"), await world.node("b")
    assert await node.alter({ALICE: {PRODUCE: 1000, CONSUME: 2000}, CLIENTS: {MUTATE: 0.5}}) == ["", ""]
    assert node.log.image.version == 1
    assert node.log.image.quotas == {ALICE: {PRODUCE: 1000, CONSUME: 2000}, CLIENTS: {MUTATE: 0.5}}
    assert await node.alter({ALICE: {PRODUCE: None, CONSUME: 3000, MUTATE: None}, CLIENTS: {MUTATE: None}}) == ["", ""]
    assert node.log.image.quotas == {ALICE: {CONSUME: 3000}}
    await other.log.load()
    assert other.log.image.quotas == {ALICE: {CONSUME: 3000}}


@pytest.mark.rule("CM-191")
async def test_what_changes_nothing_makes_no_version(world: World) -> None:
    node = await world.node()
    await node.alter({ALICE: {PRODUCE: 1000}})
    assert await node.alter({ALICE: {PRODUCE: 1000}, APP: {PRODUCE: None}}) == ["", ""]
    assert await node.alter({ALICE: {PRODUCE: 5}, USERS: {"nothing": 1}}, check_only=True) != ["", ""]
    assert node.log.image.version == 1
    assert node.log.image.quotas == {ALICE: {PRODUCE: 1000}}


@pytest.mark.rule("CM-191")
@pytest.mark.parametrize(
    ("entity", "ops", "said"),
    [
        (ALICE, {"producer_rate": 1}, "unknown quota 'producer_rate'; there are .* Did you mean 'producer_byte_rate'"),
        (ALICE, {"request_percentage": 50}, "request_percentage is not served here: the calls of one user"),
        (ALICE, {PRODUCE: 0.0001}, "producer_byte_rate=0.0001 is not a whole number"),
        (ALICE, {PRODUCE: -1}, "producer_byte_rate=-1 is not possible; expected more than 0 bytes a second"),
        (ALICE, {MUTATE: float("nan")}, "controller_mutation_rate=nan is not possible"),
        (ALICE, {MUTATE: 1e300}, "controller_mutation_rate=1e[+]300 is not possible"),
        ((("ip", "10.0.0.1"),), {PRODUCE: 1}, "quotas of an ip are not served"),
        ((("users", "a"),), {PRODUCE: 1}, "unknown entity type 'users'; expected user or client-id"),
        ((("user", ""),), {PRODUCE: 1}, "the name of the user is empty; leave the name out for the default"),
        ((("user", "User:a"),), {PRODUCE: 1}, "begins with 'User:'; expected the name alone: 'a'"),
        ((("user", "a"), ("user", "b")), {PRODUCE: 1}, "two parts of the type user"),
        ((("client-id", "x" * 256),), {PRODUCE: 1}, "has 256 characters; at most 255"),
        ((), {PRODUCE: 1}, "the entity has no parts"),
    ],
)
async def test_a_wrong_entity_is_refused_as_a_whole_with_the_reason(
    world: World, entity: Any, ops: dict[str, float | None], said: str
) -> None:
    node = await world.node()
    (refused, done) = await node.alter({entity: {CONSUME: 5, **ops}, USERS: {CONSUME: 7}})
    assert re.search(said, refused), refused
    assert done == ""
    assert node.log.image.quotas == {USERS: {CONSUME: 7}}


@pytest.mark.rule("CM-191")
async def test_an_entity_or_a_key_that_is_named_twice_is_refused(world: World) -> None:
    node = await world.node()
    twice = await node.alter(
        {(("user", "a"), ("client-id", "c")): {PRODUCE: 1}, (("client-id", "c"), ("user", "a")): {}}
    )
    assert ["named" in text or "2 times" in text for text in twice] == [True, True]
    request = AlterClientQuotasRequest()
    entry = request.entries.add()
    entry.entity.add(entity_type="user")
    entry.ops.add(key=PRODUCE, value=1)
    entry.ops.add(key=PRODUCE, value=2)
    response = await node.admin.alter_client_quotas(request, CALLER)
    assert "producer_byte_rate is named more than once" in response.entries[0].error_message
    assert not node.log.image.quotas


@pytest.mark.rule("CM-191")
async def test_entities_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await world.node()
    monkeypatch.setattr(quota_admin, "CLUSTER_QUOTAS_MAX", 2)
    results = await node.alter({QuotaEntity(name): {PRODUCE: 1} for name in "abc"})
    assert results[:2] == ["", ""]
    assert "at most 2 entities" in results[2]
    assert await node.alter({QuotaEntity("a"): {CONSUME: 1}}) == [""]
    with pytest.raises(RpcFailureError, match="1001 entities; at most 1000"):
        await node.alter({QuotaEntity(str(number)): {} for number in range(1001)})


@pytest.mark.rule("CM-191")
async def test_entities_are_listed_by_their_parts(world: World) -> None:
    node = await world.node()
    everything = [USERS, ALICE, APP, CLIENTS]
    await node.alter({entity: {PRODUCE: 1} for entity in reversed(everything)})
    assert await node.listed() == everything
    assert await node.listed(("user", 0, "alice")) == [ALICE, APP]
    assert await node.listed(("user", 0, "alice"), strict=True) == [ALICE]
    assert await node.listed(("user", 1, None)) == [USERS]
    assert await node.listed(("user", 2, None), strict=True) == [USERS, ALICE]
    assert await node.listed(("user", 2, None), ("client-id", 0, "app")) == [APP]
    assert await node.listed(("client-id", 1, None), strict=True) == [CLIENTS]
    for wrong in (("ip", 2, None), ("user", 0, None), ("user", 1, "a"), ("user", 3, None)):
        with pytest.raises(AssertionError, match=r"\(42, "):
            await node.listed(wrong)
    with pytest.raises(AssertionError, match="two components"):
        await node.listed(("user", 2, None), ("user", 1, None))


@pytest.mark.rule("CM-191", "CM-61")
async def test_rights_on_the_cluster_are_needed(world: World) -> None:
    node = await world.node()
    await node.alter({ALICE: {PRODUCE: 1}})
    access = Access()
    describe = Acl(ResourceType.CLUSTER, "kafka-cluster", 3, "User:mallory", "*", Operation.DESCRIBE_CONFIGS,
                   Permission.ALLOW)  # fmt: skip
    access.follow(frozenset([describe]))
    path = "/kip932.api.v1.ClusterService/"
    rights = {
        name: Rights(access, "User:mallory", "10.0.0.1", RPCS[path + name].needs)
        for name in ("AlterClientQuotas", "DescribeClientQuotas")
    }
    node.caller = CallContext("10.0.0.1", "c2", lambda: None, rights=rights["AlterClientQuotas"])
    (refused,) = await node.alter({ALICE: {PRODUCE: None}})
    assert "may not ALTER_CONFIGS CLUSTER" in refused
    node.caller = CallContext("10.0.0.1", "c2", lambda: None, rights=rights["DescribeClientQuotas"])
    assert await node.listed() == [ALICE]
    access.follow(frozenset())
    with pytest.raises(AssertionError, match="may not DESCRIBE_CONFIGS CLUSTER"):
        await node.listed()


@pytest.mark.rule("CM-191", "CM-164")
async def test_a_change_is_one_line_of_the_log(world: World) -> None:
    node = await world.node()
    with structlog.testing.capture_logs() as lines:
        await node.alter({APP: {PRODUCE: 1000.0, MUTATE: 0.5}, USERS: {CONSUME: None}})
        await node.alter({APP: {PRODUCE: None}})
    changed = [line["changed"] for line in lines if line["event"] == "quotas_altered"]
    assert changed == [
        "user-principal 'alice', client-id 'app' producer_byte_rate=1000, "
        "user-principal 'alice', client-id 'app' controller_mutation_rate=0.5",
        "user-principal 'alice', client-id 'app' producer_byte_rate removed",
    ]


@pytest.mark.rule("CM-20", "CM-191")
async def test_changes_and_snapshots_keep_every_kind_of_entity(world: World) -> None:
    node = await world.node()
    entities = [ALICE, APP, USERS, CLIENTS, QuotaEntity("", ""), QuotaEntity("", "app"), QuotaEntity(None, "app")]
    await node.alter({entity: {PRODUCE: number + 1.0} for number, entity in enumerate(entities)})
    image = node.log.image
    data = metadata_codec.encode_snapshot(image.snapshot(), b"x" * 16, 0)
    snapshot = metadata_codec.decode(data).snapshot
    assert snapshot is not None
    assert image_of(image.version, snapshot).quotas == image.quotas
    changes = [QuotaSet(entity, CONSUME, 2.5) for entity in entities]
    removals = [QuotaRemoved(entity, CONSUME) for entity in entities]
    entry = metadata_codec.decode(metadata_codec.encode_changes([*changes, *removals], b"y" * 16, 0))
    assert entry.changes == (*changes, *removals)
    assert entry.unknown == 0
    assert image.apply(9, entry.changes).quotas == image.quotas
    assert image.apply(9, changes).quotas is not image.quotas
    assert image.apply(9, []).quotas is image.quotas
