"""The admin client and access control entries: one request, a result for each, errors, nodes that do not respond."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaStorageError,
    NetworkError,
    UnsupportedVersionError,
)
from kip932.rpc.transport import TransportStatus
from sharegroups.aio.admin import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.aio.hooked import HookedTransport

READ = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
DENIED = Acl(ResourceType.GROUP, "g-", PatternType.PREFIXED, "User:*", "10.0.0.1", Operation.ALL, Permission.DENY)
WRONG = READ._replace(principal="a")


def admin(fake: FakeCluster, transport: Any = None) -> Admin:
    servers = ",".join(f"node{node}:9000" for node in fake.nodes)
    return Admin({"bootstrap.servers": servers}, transport=transport or fake.transport())


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_entries_are_added_listed_and_removed(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        assert await a.create_acls([WRITE, DENIED, READ, READ]) == {WRITE: None, DENIED: None, READ: None}
        listed = await a.describe_acls()
        assert listed == [READ, WRITE, DENIED]
        assert [acl.operation for acl in listed] == [Operation.READ, Operation.WRITE, Operation.ALL]
        assert isinstance(listed[0].resource_type, ResourceType)
        assert await a.describe_acls(AclFilter(ResourceType.GROUP, "g-1", PatternType.MATCH)) == [DENIED]
        of_a, of_b = AclFilter(principal="User:a"), AclFilter(principal="User:b")
        assert await a.delete_acls([of_a, of_b]) == {of_a: [READ, WRITE], of_b: []}
        assert await a.describe_acls() == [DENIED]


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_each_entry_and_each_filter_has_its_own_result_from_one_request(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        fake.errors["create_acls"].extend([KafkaStorageError.code, 0, 0])
        added = await a.create_acls([READ, WRONG, WRITE])
        assert [type(error) for error in added.values()] == [KafkaStorageError, InvalidRequestError, type(None)]
        fake.errors["delete_acls"].append(ClusterAuthorizationFailedError.code)
        first, second = AclFilter(operation=Operation.READ), AclFilter(operation=Operation.WRITE)
        removed = await a.delete_acls([first, second])
        assert isinstance(removed[first], ClusterAuthorizationFailedError)
        assert removed[second] == [WRITE]
    assert [len(request.creations) for request in fake.acl_requests[:1]] == [3]
    assert [len(request.filters) for request in fake.acl_requests[1:]] == [2]


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_an_entry_that_exists_is_no_error(fake: FakeCluster) -> None:
    fake.acls.add(READ)
    async with admin(fake) as a:
        assert await a.create_acls([READ]) == {READ: None}
    assert fake.acls == {READ}


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_a_list_that_is_refused_is_an_error_and_one_that_is_not_ready_is_asked_for_again(
    fake: FakeCluster,
) -> None:
    fake.acls.add(READ)
    async with admin(fake) as a:
        fake.errors["describe_acls"].append(ClusterAuthorizationFailedError.code)
        with pytest.raises(ClusterAuthorizationFailedError):
            await a.describe_acls()
        fake.errors["describe_acls"].append(15)  # COORDINATOR_NOT_AVAILABLE
        assert await a.describe_acls() == [READ]


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_a_number_that_is_not_known_stays_a_number(fake: FakeCluster) -> None:
    newer = READ._replace(resource_type=7, operation=15)
    fake.acls.add(newer)
    async with admin(fake) as a:
        assert await a.describe_acls() == [newer]


@pytest.mark.rule("CL-157")
@on_fake_cluster(nodes=2)
async def test_any_node_is_called_and_a_request_without_a_response_is_repeated(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    async with admin(fake, transport) as a:
        for method in ("CreateAcls", "DescribeAcls", "DeleteAcls"):
            transport.instead[method].append(TransportStatus.UNAVAILABLE)
        assert await a.create_acls([READ]) == {READ: None}
        assert await a.describe_acls() == [READ]
        everything = AclFilter()
        assert await a.delete_acls([everything]) == {everything: [READ]}
    for method in ("CreateAcls", "DescribeAcls", "DeleteAcls"):
        assert len({call.address for call in transport.calls(method)}) == 2


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_a_response_with_another_number_of_results_is_an_error(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)

    def cut_results(answer: Any) -> None:
        del answer.results[-1]

    def cut_filters(answer: Any) -> None:
        del answer.filter_results[:]

    transport.instead["CreateAcls"].append(cut_results)
    transport.instead["DeleteAcls"].append(cut_filters)
    async with admin(fake, transport) as a:
        with pytest.raises(NetworkError, match="create_acls has 1 results for 2 items"):
            await a.create_acls([READ, WRITE])
        with pytest.raises(NetworkError, match="delete_acls has 0 results for 1 items"):
            await a.delete_acls([AclFilter()])


@pytest.mark.rule("CL-157")
@on_fake_cluster()
async def test_a_node_without_these_calls_is_named(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    transport.instead["DescribeAcls"].append(TransportStatus.UNIMPLEMENTED)
    async with admin(fake, transport) as a:
        with pytest.raises(UnsupportedVersionError, match="node0:9000"):
            await a.describe_acls()
