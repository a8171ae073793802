"""A coordinator notifies leaders of removed members: in batches, with retries, within a time limit (GC-39a, GC-39b)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from group_coordinator.core.commands import MemberExpired
from group_coordinator.core.member import Member
from group_coordinator.member_removals import MemberRemovals
from kip932.api.v1 import partition_leader_service_pb2 as leader_pb
from kip932.internal.v1 import end_member_sessions_pb2 as pb
from kip932.internal.v1 import member_sessions_service_pb2 as service_pb
from tests.support.clocks import LoopClock
from tests.support.group_cluster import LEADER, GroupCluster, Leaders
from tests.support.virtual_time import now_s, virtual
from tests.twin.transport import InMemoryNetwork

LEADERS = leader_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
SERVICE = service_pb.DESCRIPTOR.services_by_name["MemberSessionsService"]
ONE, TWO = "leader-1:9093", "leader-2:9093"


class Leader:
    """A leader that records the notices it receives, and when."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str, int]]] = []
        self.at_s: list[float] = []

    async def end_member_sessions(
        self, request: pb.EndMemberSessionsRequest, context: object
    ) -> pb.EndMemberSessionsResponse:
        del context
        self.at_s.append(now_s())
        self.calls.append([(each.group_id, each.member_id, each.group_epoch) for each in request.members])
        return pb.EndMemberSessionsResponse()


class Coordinator:
    """A coordinator that sends notices, and the leaders by address. `listed`: the addresses in the node list."""

    def __init__(self) -> None:
        self.network = InMemoryNetwork()
        self.listed = {ONE, TWO}
        self.reported: Counter[str] = Counter()
        self.removals = MemberRemovals(
            self.network.transport(),
            lambda: self.listed,
            LoopClock(),
            lambda outcome, orders: self.reported.update({outcome: orders}),
        )

    def leader(self, address: str) -> Leader:
        made = Leader()
        self.network.serve(address, SERVICE, made)
        return made

    def remove(self, member_id: str, group_epoch: int) -> None:
        self.removals.removed(MemberExpired("g", Member(member_id), None, 45_000, group_epoch))


@asynccontextmanager
async def coordinator() -> AsyncIterator[Coordinator]:
    made = Coordinator()
    made.removals.start()
    yield made
    await made.removals.stop()


class SilentLeader(Leader):
    """A leader that receives calls but never responds."""

    async def end_member_sessions(
        self, request: pb.EndMemberSessionsRequest, context: object
    ) -> pb.EndMemberSessionsResponse:
        await super().end_member_sessions(request, context)
        await asyncio.sleep(100)
        return pb.EndMemberSessionsResponse()


@pytest.mark.rule("GC-39b")
@virtual
async def test_a_leader_that_does_not_answer_keeps_orders_to_no_other_one_back() -> None:
    async with coordinator() as made:
        silent = SilentLeader()
        made.network.serve(ONE, SERVICE, silent)
        two = made.leader(TWO)
        for number in range(5):
            made.remove(f"m{number}", 6 + number)
            await asyncio.sleep(1)
        assert two.calls == [[("g", f"m{number}", 6 + number)] for number in range(5)]
        assert all(at_s - number < 0.1 for number, at_s in enumerate(two.at_s)), two.at_s
        assert [len(call) for call in silent.calls] == [1, 4], "waiting notices must be sent together with the retry"
        await asyncio.sleep(40)
        assert made.reported == {"reported": 5, "dropped": 5}


@pytest.mark.rule("GC-39b")
@virtual
async def test_removals_of_the_same_moment_are_one_call_to_each_leader() -> None:
    async with coordinator() as made:
        one, two = made.leader(ONE), made.leader(TWO)
        made.remove("A", 6)
        await asyncio.sleep(0.02)
        made.remove("B", 7)
        await asyncio.sleep(1)
        assert one.calls == two.calls == [[("g", "A", 6), ("g", "B", 7)]]
        assert made.reported == {"reported": 4}


@pytest.mark.rule("GC-39b")
@virtual
async def test_a_leader_that_is_not_reached_is_reported_again_and_no_other_is() -> None:
    async with coordinator() as made:
        one = made.leader(ONE)
        made.remove("A", 6)
        await asyncio.sleep(3)
        two = made.leader(TWO)
        await asyncio.sleep(1)
        assert one.calls == two.calls == [[("g", "A", 6)]]
        assert made.reported == {"reported": 2}


@pytest.mark.rule("GC-39b")
@virtual
async def test_a_leader_that_is_not_reached_in_half_a_minute_is_left_alone() -> None:
    async with coordinator() as made:
        made.listed = {TWO}
        made.remove("A", 6)
        await asyncio.sleep(31)
        assert made.reported == {"dropped": 1}
        two = made.leader(TWO)
        await asyncio.sleep(5)
        assert two.calls == []


@pytest.mark.rule("GC-39b")
@virtual
async def test_a_leader_of_an_older_build_is_counted_and_makes_no_noise() -> None:
    async with coordinator() as made:
        made.listed = {ONE}
        made.network.serve(ONE, LEADERS, Leaders())
        with capture_logs() as said:
            made.remove("A", 6)
            await asyncio.sleep(10)
        assert [each["log_level"] for each in said] == ["debug"]
        assert made.reported == {"refused": 1}


@pytest.mark.rule("GC-39a")
@virtual
async def test_who_expires_is_reported_with_the_epoch_of_the_removal_and_who_leaves_is_not() -> None:
    async with GroupCluster() as world:
        leader = Leader()
        world.network.serve(LEADER, SERVICE, leader)
        world.create("t", 2)
        await world.heartbeat("A", 0, ["t"])
        await world.heartbeat("B", 0, ["t"])
        await world.heartbeat("B", -1)
        await asyncio.sleep(1)
        assert leader.calls == []
        await asyncio.sleep(50)
        (shard,) = [shard for _, shard in world.role.shards.serving() if "grp" in shard.groups]
        assert leader.calls == [[("grp", "A", shard.groups["grp"].epoch)]]
        assert (
            world.registry.get_sample_value(
                "sharegroups_group_coordinator_member_removals_total", {"outcome": "reported"}
            )
            == 1
        )
