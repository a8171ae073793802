"""A list of groups reports what is missing: shards that no node serves, and nodes that do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NetworkError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.admin_values import GroupListing, ListGroupsResult
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

LIST: Final = "ListGroups"
LOADING, UNAVAILABLE, AWAY = 14, 15, 16
MINE: Final = GroupListing("g", "Empty", "share", 0)


class Shards(HookedTransport):
    """Adds the shards in `left_out`, with these errors, to a node's response as unserved; the node `silent` does not
    respond."""

    def __init__(self, fake: FakeCluster) -> None:
        super().__init__(fake)
        self.left_out: dict[str, Mapping[int, int]] = {}
        self.silent = ""

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        if address == self.silent:
            await asyncio.sleep(timeout_s)
            raise TransportError(TransportStatus.DEADLINE_EXCEEDED, address, f"{method.name} not answered")
        answer = await super().call(address, method, request, timeout_s)
        if method.name == LIST:
            for shard, code in self.left_out.get(address, {}).items():
                answer.unserved_shards.add(shard=shard, error_code=ErrorCode.ValueType(code), error_message=f"{code}.")
                if code != AWAY:
                    answer.error_code = ErrorCode.ValueType(code)
        return answer


async def listed(transport: Any, **settings: Any) -> ListGroupsResult:
    async with Admin({"bootstrap.servers": "node0:9000"} | settings, transport=transport) as admin:
        return await admin.list_groups()


@pytest.mark.rule("GC-123")
@on_fake_cluster(nodes=2)
async def test_shards_of_other_nodes_are_no_error(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {0: AWAY, 2: AWAY}, "node1:9000": {1: AWAY}}
    found = await listed(transport)
    assert (found.valid(), found.errors(), list(found), now_s()) == ((MINE,), (), [MINE], 0)
    assert len(transport.calls(LIST)) == 2


@pytest.mark.rule("GC-123", "CL-46")
@on_fake_cluster(nodes=2)
async def test_a_shard_that_changes_hands_is_asked_for_again(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {0: AWAY, 2: AWAY}, "node1:9000": {1: AWAY, 2: AWAY}}

    def claimed(_answer: Any) -> None:
        if now_s() > 4:
            transport.left_out["node1:9000"] = {1: AWAY}

    transport.instead[LIST].extend([claimed] * 100)
    found = await listed(transport)
    assert (found.all(), found.errors()) == ((MINE,), ())
    assert 4 < now_s() < 6


@pytest.mark.rule("GC-123")
@on_fake_cluster(nodes=2)
async def test_what_no_node_serves_is_an_error_that_is_not_overlooked_and_what_was_found_is_there(
    fake: FakeCluster,
) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {0: AWAY, 2: AWAY, 5: AWAY}, "node1:9000": {1: AWAY, 2: AWAY, 5: AWAY}}
    found = await listed(transport)
    assert 10 <= now_s() < 12
    assert found.valid() == (MINE,)
    (error,) = found.errors()
    assert isinstance(error, CoordinatorNotAvailableError)
    assert "No node serves shards 2, 5 of the group log, so their groups are not listed" in error.message
    for use in (found.all, lambda: list(found), lambda: len(found), lambda: found[0], lambda: bool(found)):
        with pytest.raises(CoordinatorNotAvailableError):
            use()


@pytest.mark.rule("GC-123", "CL-46")
@on_fake_cluster(nodes=2)
async def test_a_shard_whose_owner_cannot_answer_is_asked_for_until_the_time_is_over(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {1: AWAY, 2: UNAVAILABLE}, "node1:9000": {0: AWAY, 1: LOADING, 2: AWAY}}
    found = await listed(transport, **{"default.api.timeout.ms": 20_000})
    assert found.valid() == (MINE,)
    loading, away = found.errors()
    assert isinstance(loading, CoordinatorLoadInProgressError)
    assert isinstance(away, CoordinatorNotAvailableError)
    assert "shard 1 of the group log is not listed: 14." in loading.message
    assert "shard 2 of the group log is not listed: 15." in away.message
    assert 19 < now_s() <= 20


@pytest.mark.rule("GC-123")
@on_fake_cluster(nodes=2)
async def test_of_shards_that_a_node_may_have_which_does_not_answer_nothing_else_is_said(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {1: AWAY, 2: AWAY}}
    transport.silent = "node1:9000"
    found = await listed(transport, **{"default.api.timeout.ms": 15_000})
    assert found.valid() == (MINE,)
    (error,) = found.errors()
    assert isinstance(error, NetworkError)
    assert "Node 1 at node1:9000 does not list its groups" in error.message
    assert now_s() == pytest.approx(15, abs=0.1)


@pytest.mark.rule("GC-123", "CL-46")
@on_fake_cluster(nodes=2)
async def test_a_silent_node_is_waited_for_only_while_it_is_a_node_of_the_cluster(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.silent = "node1:9000"

    def without_it(answer: Any) -> None:
        if now_s() > 5:
            del answer.brokers[1:]

    transport.instead["Metadata"].extend([without_it] * 100)
    assert (await listed(transport)).all() == (MINE,)
    assert 5 < now_s() < 8


@pytest.mark.rule("GC-123")
@on_fake_cluster(nodes=2)
async def test_an_older_node_names_no_shard_so_nothing_is_known_to_be_missing(fake: FakeCluster) -> None:
    transport = Shards(fake)
    transport.left_out = {"node0:9000": {1: AWAY, 2: AWAY}}
    assert (await listed(transport)).all() == (MINE,)
    assert now_s() == 0


@pytest.mark.rule("GC-123", "CL-88")
@on_fake_cluster(nodes=2)
async def test_an_error_that_no_retry_helps_is_reported_at_once(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    transport.instead[LIST].append(TransportStatus.UNIMPLEMENTED)
    found = await listed(transport)
    (error,) = found.errors()
    assert isinstance(error, UnsupportedVersionError)
    assert (found.valid(), now_s()) == ((MINE,), 0)


@pytest.mark.rule("GC-123", "CL-46")
@on_fake_cluster()
async def test_without_a_coordinator_or_an_answer_the_list_is_not_empty_but_refused(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)

    def leaders_only(answer: Any) -> None:
        for node in answer.brokers:
            node.roles[:] = ["partition-leader"]

    transport.instead["Metadata"].extend([leaders_only] * 100)
    settings = {"default.api.timeout.ms": 3_000}
    found = await listed(transport, **settings)
    (error,) = found.errors()
    assert isinstance(error, CoordinatorNotAvailableError)
    assert "No live node is a group coordinator" in error.message
    fake.network.stop("node0:9000")
    with pytest.raises(RequestTimedOutError, match="ListGroups was not answered within 3 s"):
        await listed(HookedTransport(fake), **settings)
