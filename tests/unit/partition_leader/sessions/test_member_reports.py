"""A leader reports lost members to coordinators: in batches, with retries, within a time limit (PL-527)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from structlog.testing import capture_logs

from kip932.api.v1 import partition_leader_service_pb2 as leader_pb
from kip932.errors import GroupIdNotFoundError, NotCoordinatorError
from kip932.internal.v1 import member_connections_service_pb2 as service_pb
from kip932.internal.v1 import report_member_connections_pb2 as pb
from partition_leader.sessions.core.session import SessionKey
from partition_leader.sessions.member_reports import MemberReports
from tests.support.clocks import LoopClock
from tests.support.group_cluster import GroupCluster, Leaders
from tests.support.virtual_time import virtual
from tests.twin.transport import InMemoryNetwork

LEADERS = leader_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
SERVICE = service_pb.DESCRIPTOR.services_by_name["MemberConnectionsService"]
ONE, OTHER = "coordinator-1:9093", "coordinator-2:9093"
A, B = SessionKey("g", "A"), SessionKey("g", "B")


class Coordinator:
    """A coordinator that records the reports it receives; `code`: the error code of its responses."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.calls: list[list[tuple[str, bool, int]]] = []

    async def report_member_connections(
        self, request: pb.ReportMemberConnectionsRequest, context: object
    ) -> pb.ReportMemberConnectionsResponse:
        del context
        assert request.leader == "leader-1:9092"
        self.calls.append([(each.member_id, each.returned, each.ago_ms) for each in request.members])
        response = pb.ReportMemberConnectionsResponse()
        for _ in request.members:
            response.results.add(error_code=self.code)
        return response


class Leader:
    """A leader that sends reports, and the coordinators by address. `where`: the address of the coordinator of every
    group."""

    def __init__(self) -> None:
        self.network = InMemoryNetwork()
        self.where: str | None = ONE
        self.reported: Counter[str] = Counter()
        self.reports = MemberReports(
            self.network.transport(), lambda _: self.where, lambda: "leader-1:9092", LoopClock(), self._reported
        )
        self.reports.start()

    def coordinator(self, address: str, code: int = 0) -> Coordinator:
        made = Coordinator(code)
        self.network.serve(address, SERVICE, made)
        return made

    def _reported(self, outcome: str, reports: int) -> None:
        self.reported[outcome] += reports


@pytest.mark.rule("PL-527")
@virtual
async def test_losses_of_the_same_moment_are_one_call_with_their_ages() -> None:
    leader = Leader()
    coordinator = leader.coordinator(ONE)
    leader.reports.lost([A])
    await asyncio.sleep(0.02)
    leader.reports.lost([B])
    await asyncio.sleep(0.5)
    assert coordinator.calls == [[("A", False, 50), ("B", False, 30)]]
    leader.reports.back(A)
    await asyncio.sleep(0.5)
    assert coordinator.calls[1:] == [[("A", True, 50)]]
    assert leader.reported == {"reported": 3}
    await leader.reports.stop()


@pytest.mark.rule("PL-527")
@virtual
async def test_only_the_newest_report_of_a_member_is_sent_and_a_return_only_after_a_loss() -> None:
    leader = Leader()
    coordinator = leader.coordinator(ONE)
    leader.reports.lost([A, B])
    await asyncio.sleep(0.01)
    leader.reports.lost([A])
    leader.reports.back(B)
    await asyncio.sleep(0.5)
    assert coordinator.calls == [[("A", False, 40)]]
    await leader.reports.stop()


@pytest.mark.rule("PL-527")
@virtual
async def test_a_loss_that_no_coordinator_knows_of_yet_is_not_reported_once_the_member_is_back() -> None:
    leader = Leader()
    leader.reports.lost([A, B])
    await asyncio.sleep(0.1)  # no server answers
    leader.reports.back(A)
    coordinator = leader.coordinator(ONE)
    await asyncio.sleep(2)
    reported = [(member, returned) for call in coordinator.calls for member, returned, _ in call]
    assert reported == [("B", False), ("A", True)]
    await leader.reports.stop()


class SilentCoordinator(Coordinator):
    """A coordinator that receives calls but never responds."""

    async def report_member_connections(
        self, request: pb.ReportMemberConnectionsRequest, context: object
    ) -> pb.ReportMemberConnectionsResponse:
        await super().report_member_connections(request, context)
        await asyncio.sleep(100)
        return pb.ReportMemberConnectionsResponse()


@pytest.mark.rule("PL-527")
@virtual
async def test_a_coordinator_that_does_not_answer_delays_no_other_and_an_outdated_report_is_not_sent() -> None:
    leader = Leader()
    silent, other = SilentCoordinator(), leader.coordinator(OTHER)
    leader.network.serve(ONE, SERVICE, silent)
    leader.reports.lost([A])
    await asyncio.sleep(0.1)
    leader.where = OTHER
    leader.reports.lost([B])
    leader.reports.back(A)
    await asyncio.sleep(0.1)
    assert silent.calls == [[("A", False, 50)]]
    assert other.calls == [[("B", False, 50), ("A", True, 50)]]
    await asyncio.sleep(10)
    assert len(other.calls) == 1, "the report that A is lost is outdated"
    assert leader.reported == {"reported": 2}
    await leader.reports.stop()


@pytest.mark.rule("PL-527")
@virtual
async def test_a_report_is_reported_again_until_a_coordinator_takes_it() -> None:
    leader = Leader()
    leader.where = None
    leader.reports.lost([A])
    await asyncio.sleep(0.6)
    leader.where = OTHER  # no server answers at this address
    await asyncio.sleep(0.6)
    former, present = leader.coordinator(OTHER, NotCoordinatorError.code), leader.coordinator(ONE)
    await asyncio.sleep(1)
    leader.where = ONE
    await asyncio.sleep(1)
    assert len(former.calls) >= 1
    ((reported,),) = present.calls
    assert reported[:2] == ("A", False)
    assert reported[2] > 2_000, "its age grows with the tries"
    assert leader.reported == {"reported": 1}
    await leader.reports.stop()


@pytest.mark.rule("PL-527")
@virtual
async def test_a_report_that_is_not_taken_in_ten_seconds_is_dropped() -> None:
    leader = Leader()
    coordinator = leader.coordinator(ONE, NotCoordinatorError.code)
    leader.reports.lost([A])
    await asyncio.sleep(12)
    tries = len(coordinator.calls)
    assert 10 <= tries <= 20
    assert leader.reported == {"dropped": 1}
    await asyncio.sleep(10)
    assert len(coordinator.calls) == tries
    await leader.reports.stop()


@pytest.mark.rule("PL-527")
@virtual
async def test_what_is_refused_for_good_is_not_reported_again() -> None:
    leader = Leader()
    coordinator = leader.coordinator(ONE, GroupIdNotFoundError.code)
    leader.reports.lost([A])
    await asyncio.sleep(5)
    assert len(coordinator.calls) == 1
    leader.where = OTHER
    leader.network.serve(OTHER, LEADERS, Leaders())  # a node of a build that does not have this call
    leader.reports.lost([B])
    await asyncio.sleep(5)
    assert leader.reported == {"reported": 1, "refused": 1}
    await leader.reports.stop()


@pytest.mark.rule("GC-36", "GC-37", "GC-39")
@virtual
async def test_a_coordinator_expels_whom_a_leader_lost_says_it_and_keeps_whom_it_has_again() -> None:
    async with GroupCluster() as world:
        world.network.serve(ONE, SERVICE, world.role.connections)
        reported: Counter[str] = Counter()
        reports = MemberReports(
            world.transport,
            lambda _: ONE,
            lambda: "leader-1:9092",
            world.clock,
            lambda outcome, count: reported.update({outcome: count}),
        )
        reports.start()
        world.create("t", 1)
        await world.heartbeat("A", 0, ["t"])
        await world.heartbeat("B", 0, ["t"])
        await asyncio.sleep(2)
        lost, back = SessionKey("grp", "A"), SessionKey("grp", "B")
        reports.lost([lost, back])
        await asyncio.sleep(1)
        reports.back(back)
        with capture_logs() as said:
            await asyncio.sleep(6)
        (line,) = [each for each in said if each["event"] == "member_expired"]
        assert "connection to a leader was lost" in line["cause"]
        assert (line["group"], line["member"], line["leader"], line["waited_s"]) == ("grp", "A", "leader-1:9092", 6.0)
        (shard,) = [shard for _, shard in world.role.shards.serving() if "grp" in shard.groups]
        assert set(shard.groups["grp"].members) == {"B"}
        counted = world.registry.get_sample_value
        assert counted("sharegroups_group_coordinator_expired_members_total", {"reason": "lost_connection"}) == 1
        with capture_logs() as said:
            await asyncio.sleep(45)
        expired = [each for each in said if each["event"] == "member_expired"]
        assert [(each["member"], "session time-out" in each["cause"]) for each in expired] == [("B", True)]
        assert counted("sharegroups_group_coordinator_expired_members_total", {"reason": "session_timeout"}) == 1
        assert reported == {"reported": 3}
        await reports.stop()
