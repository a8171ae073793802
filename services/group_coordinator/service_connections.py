"""Translates partition leaders' reports about members' connections to commands (GC-36, GC-37), and reports removals of
members.

`MemberConnectionsService` is served to nodes only (CM-80), so it checks no access.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from group_coordinator.core import commands as c
from group_coordinator.metrics import LOST_CONNECTION, SESSION_TIMEOUT
from group_coordinator.service import Surroundings, error_code
from kip932 import errors
from kip932.internal.v1 import report_member_connections_pb2 as pb
from shard_runtime.rpc.binding import CallContext

log = structlog.get_logger(__name__)

REPORTS_MAX: Final = 1_000


class MemberConnections:
    """The handler of `ReportMemberConnections`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def report_member_connections(
        self, request: pb.ReportMemberConnectionsRequest, context: CallContext
    ) -> pb.ReportMemberConnectionsResponse:
        """Return each report's outcome. An error of one report does not affect the others."""
        del context
        reports = request.members[:REPORTS_MAX]
        results = await asyncio.gather(*(self._report(request.leader, report) for report in reports))
        return pb.ReportMemberConnectionsResponse(results=results)

    async def _report(
        self, leader: str, report: pb.ReportMemberConnectionsRequest.Member
    ) -> pb.ReportMemberConnectionsResponse.Result:
        command: c.ConnectionBack | c.ConnectionLost
        if report.returned:
            command = c.ConnectionBack(report.group_id, report.member_id)
        else:
            command = c.ConnectionLost(report.group_id, report.member_id, leader, max(0, report.ago_ms))
        try:
            await self._around.ask(report.group_id, command)
        except errors.KafkaError as error:
            failure, _ = self._around.failure(error)
            return pb.ReportMemberConnectionsResponse.Result(error_code=error_code(failure))
        return pb.ReportMemberConnectionsResponse.Result()


def expiry_reporter(
    count: Callable[[str], None], end_sessions: Callable[[c.MemberExpired], None]
) -> Callable[[c.MemberExpired], None]:
    """Return the function that reports a member's expulsion: it calls `end_sessions`, which notifies the leaders
    (GC-39a), calls `count` with the reason, and logs it. An orderly leave is not reported; there is no other removal,
    since only empty groups are deleted."""

    def report_expiry(expired: c.MemberExpired) -> None:
        member = expired.member
        end_sessions(expired)
        about = {
            "group": expired.group_id,
            "member": member.member_id,
            "client": member.client_id,
            "host": member.client_host,
            "waited_s": round(expired.waited_ms / 1000, 1),
            "effect": "its records go to other members",
        }
        if expired.leader is None:
            count(SESSION_TIMEOUT)
            log.info("member_expired", cause="no heartbeat within its session time-out", **about)
        else:
            count(LOST_CONNECTION)
            log.info(
                "member_expired",
                cause="its connection to a leader was lost, and no heartbeat came after that",
                leader=expired.leader,
                **about,
            )

    return report_expiry
