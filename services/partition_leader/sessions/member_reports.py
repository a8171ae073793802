"""Reports to group coordinators the members that this leader has lost, and those that are back (PL-527).

If a report is lost, the group's session timeout has the same effect later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kip932.errors import CoordinatorError, error_class
from kip932.internal.v1 import member_connections_service_pb2 as service_pb
from kip932.internal.v1 import report_member_connections_pb2 as pb
from kip932.rpc.transport import Method, Transport
from partition_leader.sessions.core.lost_members import LostMembers, Report
from partition_leader.sessions.core.session import SessionKey
from partition_leader.sessions.member_watch import MemberWatch
from shard_runtime.clock import Clock
from shard_runtime.rpc.peer_notices import CALL_S, PeerNotices

#: How long a report is worth sending.
WORTH_MS: Final = 10_000
#: Used in place of an address while a group's coordinator is not known.
_UNKNOWN: Final = ""
_REPORT: Final[Method[pb.ReportMemberConnectionsRequest, pb.ReportMemberConnectionsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['MemberConnectionsService'].full_name}/ReportMemberConnections",
    pb.ReportMemberConnectionsRequest,
    pb.ReportMemberConnectionsResponse,
)


class MemberReports(MemberWatch):
    """Sends the reports. `coordinator_of` returns the node-to-node address of a group's coordinator, None if none is
    known; `leader` returns this leader's name as shown to people; `count` counts reports by outcome."""

    def __init__(
        self,
        transport: Transport,
        coordinator_of: Callable[[str], str | None],
        leader: Callable[[], str],
        clock: Clock,
        count: Callable[[str, int], None],
    ) -> None:
        self._transport = transport
        self._coordinator_of = coordinator_of
        self._leader = leader
        self._clock = clock
        self._members = LostMembers()
        self._reports: PeerNotices[Report] = PeerNotices(
            "member-reports", clock, WORTH_MS, self._send, count, again=self._again
        )
        self.start = self._reports.start
        self.stop = self._reports.stop

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """Report members whose sessions ended with their stream."""
        now_ms = self._clock.now_ms()
        self._route(self._members.report(key, False, now_ms) for key in keys)

    def back(self, key: SessionKey) -> None:
        """Report a member that opened a session over a stream, if its loss was reported, or may have been."""
        self._reports.discard(key)
        if self._members.was_reported(key):
            self._route([self._members.report(key, True, self._clock.now_ms())])

    def _route(self, reports: Iterable[Report]) -> None:
        """Queue reports for the coordinators of their groups."""
        for report in reports:
            self._reports.add(self._coordinator_of(report.key.group_id) or _UNKNOWN, report)

    def _again(self, reports: Iterable[Report]) -> None:
        self._route(report for report in reports if self._members.is_newest(report))

    async def _send(self, address: str, reports: Sequence[Report]) -> Sequence[Report]:
        """Send reports to one coordinator. Return those to try again."""
        now_ms = self._clock.now_ms()
        self._members.sent(reports, now_ms)
        if address == _UNKNOWN:
            return reports
        request = pb.ReportMemberConnectionsRequest(leader=self._leader())
        for report in reports:
            request.members.add(
                group_id=report.key.group_id,
                member_id=report.key.member_id,
                returned=report.returned,
                ago_ms=now_ms - report.at_ms,
            )
        response = await self._transport.call(address, _REPORT, request, CALL_S)
        results = zip(reports, response.results, strict=False)
        return [report for report, result in results if result.error_code and _retriable(result.error_code)]


def _retriable(code: int) -> bool:
    """Return whether another coordinator, or the same one a little later, would accept the report."""
    return issubclass(error_class(code), CoordinatorError)
