"""CreateAcls, DescribeAcls and DeleteAcls on the in-memory store: what is stored, refused, listed and removed, by one
node and by two at the same time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace

import pytest
import pytest_asyncio
import structlog.testing

from kip932 import errors
from kip932.acls import Acl, AclFilter, Operation, ResourceType
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.api.v1.acl_pb2 import AclFilter as FilterMessage
from kip932.api.v1.create_acls_pb2 import CreateAclsRequest
from kip932.api.v1.delete_acls_pb2 import DeleteAclsRequest
from kip932.api.v1.describe_acls_pb2 import DescribeAclsRequest, DescribeAclsResponse
from shard_runtime.cluster import acl_admin, metadata_log
from shard_runtime.cluster.acl_admin import AclAdmin
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.status import RpcFailureError
from shard_runtime.rpc.table import RPCS
from tests.support.clocks import HandClock
from tests.twin import FaultPoint, MemoryStore, Stage, memory_cluster_store

pytestmark = pytest.mark.asyncio

CALLER = CallContext("10.0.0.7", "c1", lambda: None, principal="User:root", client_id="admin-1")
_PATH = "/kip932.api.v1.ClusterService/"
READ = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
WRITE = Acl(2, "orders", 3, "User:alice", "*", 4, 3)
DENIED = Acl(3, "bill", 4, "User:mallory", "10.0.0.1", 2, 2)
EVERYTHING = AclFilter()


class Node:
    """The entries as one node serves them."""

    def __init__(self, log: MetadataLog) -> None:
        self.log = log
        self.admin = AclAdmin(log)
        self.caller: Callable[[str], CallContext] = lambda rpc: CALLER

    async def create(self, *acls: Acl) -> list[int]:
        """Add entries; return the error number of each."""
        request = CreateAclsRequest(creations=[AclBinding(**acl._asdict()) for acl in acls])
        response = await self.admin.create_acls(request, self.caller("CreateAcls"))
        assert all(bool(each.error_code) == each.HasField("error_message") for each in response.results)
        return [each.error_code for each in response.results]

    async def describe(self, wanted: AclFilter = EVERYTHING) -> DescribeAclsResponse:
        return await self.admin.describe_acls(DescribeAclsRequest(filter=message(wanted)), self.caller("DescribeAcls"))

    async def listed(self, wanted: AclFilter = EVERYTHING) -> list[Acl]:
        response = await self.describe(wanted)
        assert response.error_code == 0, response.error_message
        return values(response.acls)

    async def delete(self, *filters: AclFilter) -> list[list[Acl] | int]:
        """Remove entries; return what was removed by each filter, or its error number."""
        request = DeleteAclsRequest(filters=map(message, filters))
        response = await self.admin.delete_acls(request, self.caller("DeleteAcls"))
        assert all(bool(each.error_code) == each.HasField("error_message") for each in response.filter_results)
        return [each.error_code or values(each.matching_acls) for each in response.filter_results]


def message(wanted: AclFilter) -> FilterMessage:
    return FilterMessage(**{name: value for name, value in wanted._asdict().items() if value is not None})


def values(found: Iterable[AclBinding]) -> list[Acl]:
    return [Acl(*(getattr(each, name) for name in Acl._fields)) for each in found]


def many(count: int, principal: str = "User:alice") -> list[Acl]:
    return [READ._replace(resource_name=f"t{number:05}", principal=principal) for number in range(count)]


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.memory = MemoryStore(self.clock)
        self.stores: list[ClusterStore] = []

    async def node(self, name: str = "a", settings: StoreSettings | None = None) -> Node:
        store = memory_cluster_store(self.memory, name, settings)
        self.stores.append(store)
        await store.init_cluster("c")
        log = MetadataLog(store, self.clock, "c")
        await log.load()
        return Node(log)

    def meanwhile(self, client: str, action: Callable[[], Awaitable[object]]) -> None:
        """Run `action` once, after the node `client` has read the log for its next change and before it appends."""
        reads = 0

        async def hook(point: FaultPoint) -> None:
            nonlocal reads
            if point.client == client and point.stage is Stage.REPLY and point.has("XRANGE"):
                reads += 1
                if reads == 1:
                    await action()

        self.memory.hook = hook


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.memory.hook = None
    for store in made.stores:
        await store.close()
    await made.memory.close()


# ---- create


@pytest.mark.rule("CM-61")
async def test_valid_entries_of_a_request_become_one_version_and_each_has_its_own_result(world: World) -> None:
    node, other = await world.node("a"), await world.node("b")
    invalid = READ._replace(operation=9)
    twice = WRITE
    assert await node.create(READ, invalid, twice, twice, DENIED) == [0, 42, 0, 0, 0]
    assert node.log.image.version == 1
    assert node.log.image.acls == {READ, WRITE, DENIED}
    await other.log.load()
    assert other.log.image.acls == {READ, WRITE, DENIED}


@pytest.mark.rule("CM-61")
async def test_a_refused_entry_is_reported_with_the_reason(world: World) -> None:
    node = await world.node()
    request = CreateAclsRequest(creations=[AclBinding()])
    (result,) = (await node.admin.create_acls(request, CALLER)).results
    assert result.error_code == errors.InvalidRequestError.code
    assert result.error_message.startswith("the resource type is not set; expected one of 2 TOPIC")
    assert node.log.image.version == 0


@pytest.mark.rule("CM-61")
async def test_an_entry_that_exists_is_no_error_and_no_change(world: World) -> None:
    node = await world.node()
    await node.create(READ)
    with structlog.testing.capture_logs() as lines:
        assert await node.create(READ) == [0]
    assert node.log.image.version == 1
    assert lines == []


@pytest.mark.rule("CM-61", "CM-62")
async def test_entries_beyond_the_bound_of_a_cluster_are_refused_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acl_admin.CLUSTER_ACLS_MAX == 10_000
    monkeypatch.setattr(acl_admin, "CLUSTER_ACLS_MAX", 5)
    node = await world.node()
    some = many(7)
    assert await node.create(*some[:3]) == [0, 0, 0]
    assert await node.create(some[0], *some[3:], some[0]) == [0, 0, 0, 42, 42, 0]
    assert node.log.image.acls == {*some[:5]}
    assert await node.create(some[5]) == [42]
    await node.delete(AclFilter(resource_name=some[0].resource_name))
    assert await node.create(some[5], some[5], some[6]) == [0, 0, 42]


@pytest.mark.rule("CM-62", "CM-91")
async def test_a_request_has_at_most_a_thousand_entries_or_filters(world: World) -> None:
    node = await world.node()
    assert await node.create(*many(1_000)) == [0] * 1_000
    with pytest.raises(RpcFailureError, match="1001 entries; at most 1000"):
        await node.create(*many(1_001))
    single = [AclFilter(*acl) for acl in many(1_000)]
    with pytest.raises(RpcFailureError, match="1001 filters; at most 1000"):
        await node.delete(*single, EVERYTHING)
    assert len(node.log.image.acls) == 1_000
    assert await node.delete(*single) == [[acl] for acl in many(1_000)]
    assert node.log.image.acls == frozenset()
    assert node.log.image.version == 2


# ---- describe


@pytest.mark.rule("CM-61")
async def test_entries_that_match_are_listed_in_order(world: World) -> None:
    node = await world.node()
    some = [DENIED, *many(3, "User:b"), WRITE, READ, *many(3, "User:a")]
    await node.create(*some)
    assert await node.listed() == sorted(some)
    assert await node.listed(AclFilter(principal="User:a")) == many(3, "User:a")
    assert await node.listed(AclFilter(resource_name="bills", resource_pattern_type=2)) == [DENIED]
    assert await node.listed(AclFilter(resource_name="bills")) == []
    assert await node.listed(AclFilter(host="10.0.0.1", operation=2)) == [DENIED]


@pytest.mark.rule("CM-61", "CM-111")
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (AclFilter(resource_type=9), "resource type 9 is not known; expected one of 1 ANY, 2 TOPIC"),
        (AclFilter(operation=0), "the operation is not set; expected one of 1 ANY, 2 ALL"),
        (AclFilter(resource_pattern_type=2), "pattern type 2 MATCH needs a resource name"),
    ],
)
async def test_a_filter_that_cannot_be_used_is_refused_and_removes_nothing(
    world: World, wanted: AclFilter, said: str
) -> None:
    node = await world.node()
    await node.create(READ, WRITE)
    response = await node.describe(wanted)
    assert (response.error_code, len(response.acls)) == (errors.InvalidRequestError.code, 0)
    assert response.error_message.startswith(said)
    assert await node.delete(wanted, AclFilter(operation=3)) == [42, [READ]]
    assert node.log.image.acls == {WRITE}


@pytest.mark.rule("CM-111")
async def test_a_request_without_a_filter_is_refused_like_an_empty_filter(world: World) -> None:
    node = await world.node()
    await node.create(READ)
    response = await node.admin.describe_acls(DescribeAclsRequest(), CALLER)
    assert (response.error_code, len(response.acls)) == (errors.InvalidRequestError.code, 0)
    deleted = await node.admin.delete_acls(DeleteAclsRequest(filters=[FilterMessage()]), CALLER)
    assert [each.error_code for each in deleted.filter_results] == [errors.InvalidRequestError.code]
    assert await node.delete() == []
    assert node.log.image.acls == {READ}


# ---- delete


@pytest.mark.rule("CM-61")
async def test_what_filters_match_is_removed_in_one_version_and_listed_for_each_of_them(world: World) -> None:
    node = await world.node()
    await node.create(READ, WRITE, DENIED)
    assert await node.delete(
        AclFilter(principal="User:alice"), AclFilter(principal="User:bob"), AclFilter(operation=3)
    ) == [[READ, WRITE], [], [READ]]
    assert node.log.image.acls == {DENIED}
    assert node.log.image.version == 2
    assert await node.delete(AclFilter(principal="User:alice")) == [[]]
    assert node.log.image.version == 2, "without anything to remove, the metadata must not change"


@pytest.mark.rule("CM-61", "CM-91")
async def test_a_filter_with_which_a_response_would_list_too_many_entries_removes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acl_admin.LISTED_ACLS_MAX == acl_admin.CLUSTER_ACLS_MAX
    monkeypatch.setattr(acl_admin, "LISTED_ACLS_MAX", 5)
    node = await world.node()
    a, b = many(3, "User:a"), many(3, "User:b")
    await node.create(*a, *b)
    only_a, only_b, first = AclFilter(principal="User:a"), AclFilter(principal="User:b"), AclFilter(*b[0])
    assert await node.delete(only_a, only_a, only_b, first) == [a, 42, 42, [b[0]]]
    assert node.log.image.acls == {*b[1:]}


@pytest.mark.rule("CM-61")
async def test_filters_find_what_comparing_every_entry_finds(world: World) -> None:
    """Tries filters with and without a name or principal, on entries that share these."""
    rng = random.Random(7)

    def one() -> Acl:
        return Acl(
            rng.choice((2, 3)), rng.choice(("a", "ab", "*")), rng.choice((3, 4)), rng.choice(("User:a", "User:*")),
            rng.choice(("*", "::1")), rng.choice((2, 3, 8)), rng.choice((2, 3)),
        )  # fmt: skip

    node = await world.node()
    for _ in range(30):
        await node.delete(EVERYTHING)
        stored = {one() for _ in range(40)}
        await node.create(*stored)
        full = one()
        name = full.resource_name if rng.random() < 0.7 else None
        wanted = AclFilter(
            rng.choice((1, full.resource_type)), name, rng.choice((1, 3, 4, 1 if name is None else 2)),
            rng.choice((None, full.principal)), rng.choice((None, full.host)), rng.choice((1, full.operation)),
            rng.choice((1, full.permission_type)),
        )  # fmt: skip
        expected = sorted(acl for acl in stored if wanted.matches(acl))
        assert await node.listed(wanted) == expected
        assert await node.delete(wanted) == [expected]
        assert await node.listed() == sorted(stored - {*expected})


# ---- at the same time as another node


@pytest.mark.rule("CM-61", "CM-20")
async def test_of_two_nodes_that_add_the_same_entry_one_stores_it_and_both_confirm_it(world: World) -> None:
    a, b = await world.node("a"), await world.node("b")
    confirmed: list[list[int]] = []

    async def first() -> None:
        confirmed.append(await b.create(READ, WRITE))

    world.meanwhile("a", first)
    with structlog.testing.capture_logs() as lines:
        confirmed.append(await a.create(READ, DENIED))
    assert confirmed == [[0, 0], [0, 0]]
    assert [(line["event"], line["changes"]) for line in lines] == [("acls_created", 2), ("acls_created", 1)]
    await b.log.load()
    assert a.log.image.acls == b.log.image.acls == {READ, WRITE, DENIED}
    assert a.log.image.version == 2


@pytest.mark.rule("CM-61", "CM-20", "CM-62")
async def test_two_nodes_that_add_entries_do_not_exceed_the_bound_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_admin, "CLUSTER_ACLS_MAX", 4)
    a, b = await world.node("a"), await world.node("b")

    async def first() -> None:
        assert await b.create(*many(3, "User:b")) == [0, 0, 0]

    world.meanwhile("a", first)
    assert await a.create(*many(3, "User:a")) == [0, 42, 42]
    assert len(a.log.image.acls) == 4


@pytest.mark.rule("CM-61", "CM-20")
async def test_an_entry_that_is_added_while_another_node_removes_is_removed_and_listed(world: World) -> None:
    a, b = await world.node("a"), await world.node("b")
    await b.create(READ)

    async def first() -> None:
        assert await b.create(WRITE, DENIED) == [0, 0]

    world.meanwhile("a", first)
    assert await a.delete(AclFilter(principal="User:alice")) == [[READ, WRITE]]
    await b.log.load()
    assert a.log.image.acls == b.log.image.acls == {DENIED}


@pytest.mark.rule("CM-61", "CM-20")
@pytest.mark.parametrize(
    ("added", "left"),
    [
        pytest.param([READ, WRITE], {READ, WRITE}, id="a change is made after the removal"),
        pytest.param([READ], set(), id="no change is made before the removal"),
    ],
)
async def test_an_entry_that_is_removed_while_another_node_adds_it_again(
    world: World, added: list[Acl], left: set[Acl]
) -> None:
    a, b = await world.node("a"), await world.node("b")
    await a.create(READ)

    async def first() -> None:
        assert await b.delete(EVERYTHING) == [[READ]]

    world.meanwhile("a", first)
    assert await a.create(*added) == [0] * len(added)
    await a.log.load()
    await b.log.load()
    assert a.log.image.acls == b.log.image.acls == left


@pytest.mark.rule("CM-61", "CM-20")
async def test_an_entry_that_two_nodes_remove_is_listed_by_one_of_them(world: World) -> None:
    a, b = await world.node("a"), await world.node("b")
    await a.create(READ, WRITE)

    async def first() -> None:
        assert await b.delete(AclFilter(operation=3)) == [[READ]]

    world.meanwhile("a", first)
    assert await a.delete(EVERYTHING) == [[WRITE]]
    assert a.log.image.acls == frozenset()


# ---- the store is away, and what is logged


@pytest.mark.rule("CM-61", "CM-164")
async def test_without_the_store_what_is_valid_is_not_confirmed_and_nothing_is_logged(world: World) -> None:
    node = await world.node("a", StoreSettings(call_ms=50, backoff_ms=5, backoff_max_ms=10))
    await node.create(READ)
    world.memory.reachable = False
    world.memory.cut_all()
    with structlog.testing.capture_logs() as lines:
        assert await node.create(WRITE, READ._replace(operation=0)) == [errors.RequestTimedOutError.code, 42]
        assert await node.delete(EVERYTHING, AclFilter(9)) == [errors.RequestTimedOutError.code, 42]
    assert [line for line in lines if line["event"].startswith("acls_")] == []
    assert await node.listed() == [READ], "the entries that this node knows are listed"


@pytest.mark.rule("CM-164", "CM-61")
async def test_a_change_is_logged_in_one_line_with_the_entries_and_the_caller(world: World) -> None:
    node = await world.node()
    with structlog.testing.capture_logs() as lines:
        await node.create(READ, DENIED, READ._replace(operation=0))
        await node.delete(AclFilter(principal="User:alice"), AclFilter(operation=3))
    caller = {"peer": "10.0.0.7", "client_id": "admin-1", "principal": "User:root", "log_level": "info"}
    allow = "ALLOW User:alice from *: READ on TOPIC 'orders'"
    deny = "DENY User:mallory from 10.0.0.1: ALL on GROUP prefix 'bill'"
    assert lines == [
        {"event": "acls_created", "changed": f"{allow}, {deny}", "changes": 2, **caller},
        {"event": "acls_deleted", "changed": allow, "changes": 1, **caller},
    ]


@pytest.mark.rule("CM-61", "CM-20")
async def test_entries_outlive_the_folding_of_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_EVERY", 2)
    node = await world.node("a")
    for acl in (READ, WRITE, DENIED):
        await node.create(acl)
    await node.delete(AclFilter(operation=4))
    later = await world.node("b")
    assert later.log.image.acls == {READ, DENIED}
    assert await later.listed() == [READ, DENIED]


# ---- who may


@pytest.mark.rule("CM-61")
async def test_what_the_caller_may_not_do_is_refused_where_kafka_refuses_it(world: World) -> None:
    node = await world.node()
    await node.create(READ)
    access = Access()
    code = errors.ClusterAuthorizationFailedError.code
    node.caller = lambda rpc: replace(CALLER, rights=Rights(access, "User:a", CALLER.peer, RPCS[_PATH + rpc].needs))
    assert await node.create(WRITE, READ._replace(operation=0)) == [code, code]
    assert await node.delete(EVERYTHING, AclFilter(9)) == [code, code]
    described = await node.describe(AclFilter(9))
    assert (described.error_code, len(described.acls)) == (code, 0)
    assert access.refused == {
        ("", Operation.ALTER, ResourceType.CLUSTER): 2,
        ("", Operation.DESCRIBE, ResourceType.CLUSTER): 1,
    }
    assert node.log.image.acls == {READ}
