"""Reports to group coordinators which members this leader has lost, and which are back (PL-527).

Nothing waits for a report. When one is lost, the group's session time-out does the same later. Reports are gathered for
a moment, sent to each coordinator in one call, and tried again for ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from kip932.errors import CoordinatorError, error_class
from kip932.internal.v1 import member_connections_service_pb2 as service_pb
from kip932.internal.v1 import report_member_connections_pb2 as pb
from kip932.rpc.transport import Method, Transport, TransportError
from partition_leader.sessions.core.lost_members import LostMembers, Report
from partition_leader.sessions.core.session import SessionKey
from partition_leader.sessions.member_watch import MemberWatch
from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)

#: How long reports are gathered, since a process that ends loses its connections one after the other.
GATHER_S: Final = 0.05
RETRY_S: Final = 0.5
CALL_S: Final = 3.0
#: The most reports of one call (CM-91), and of one round.
CALL_REPORTS_MAX: Final = 1_000
ROUND_REPORTS_MAX: Final = 5_000
_REPORT: Final[Method[pb.ReportMemberConnectionsRequest, pb.ReportMemberConnectionsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['MemberConnectionsService'].full_name}/ReportMemberConnections",
    pb.ReportMemberConnectionsRequest,
    pb.ReportMemberConnectionsResponse,
)


class MemberReports(MemberWatch):
    """Sends the reports in one task. `coordinator_of` returns the node-to-node address of a group's coordinator, None
    when none is known; `leader` names this leader for people; `told` counts reports by outcome."""

    def __init__(
        self,
        transport: Transport,
        coordinator_of: Callable[[str], str | None],
        leader: Callable[[], str],
        clock: Clock,
        told: Callable[[str, int], None],
    ) -> None:
        self._transport = transport
        self._coordinator_of = coordinator_of
        self._leader = leader
        self._clock = clock
        self._told = told
        self._members = LostMembers()
        self._dropped_counted = 0
        self._has_reports = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """Report members whose sessions ended with their stream."""
        now_ms = self._clock.now_ms()
        for key in keys:
            self._members.lost(key, now_ms)
        self._look()

    def back(self, key: SessionKey) -> None:
        """Report a member that opened a session over a stream."""
        self._members.back(key, self._clock.now_ms())
        self._look()

    def start(self) -> None:
        """Start the reporting task; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="member-reports")

    async def stop(self) -> None:
        """Stop the task; waiting reports are not sent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _look(self) -> None:
        if len(self._members):
            self._has_reports.set()

    async def _run(self) -> None:
        while True:
            await self._has_reports.wait()
            await asyncio.sleep(GATHER_S)
            try:
                whole = await self._round()
            except Exception:
                log.exception("lost_member_round_failed")
                whole = False
            if not whole:
                await asyncio.sleep(RETRY_S)

    async def _round(self) -> bool:
        """Send the waiting reports. Returns whether none of them has to be tried again."""
        self._has_reports.clear()
        by_address: dict[str, list[Report]] = {}
        failed: list[Report] = []
        for report in self._members.take(self._clock.now_ms(), ROUND_REPORTS_MAX):
            address = self._coordinator_of(report.key.group_id)
            (failed if address is None else by_address.setdefault(address, [])).append(report)
        calls = [
            self._call(address, reports[at : at + CALL_REPORTS_MAX])
            for address, reports in by_address.items()
            for at in range(0, len(reports), CALL_REPORTS_MAX)
        ]
        for left in await asyncio.gather(*calls):
            failed += left
        self._members.failed(failed)
        dropped, self._dropped_counted = self._members.dropped - self._dropped_counted, self._members.dropped
        if dropped:
            self._told("dropped", dropped)
        self._look()
        return not failed

    async def _call(self, address: str, reports: Sequence[Report]) -> list[Report]:
        """Send reports to one coordinator. Returns those to try again."""
        now_ms = self._clock.now_ms()
        request = pb.ReportMemberConnectionsRequest(leader=self._leader())
        for report in reports:
            request.members.add(
                group_id=report.key.group_id,
                member_id=report.key.member_id,
                returned=report.returned,
                ago_ms=now_ms - report.at_ms,
            )
        try:
            response = await self._transport.call(address, _REPORT, request, CALL_S)
        except TransportError as error:
            if error.retriable:
                return list(reports)
            log.debug("lost_member_reports_refused", address=address, cause=str(error))
            self._told("refused", len(reports))
            return []
        results = zip(reports, response.results, strict=False)
        again = [report for report, result in results if result.error_code and _retriable(result.error_code)]
        self._told("reported", len(reports) - len(again))
        return again


def _retriable(code: int) -> bool:
    """Return whether another coordinator, or the same one a little later, would take the report."""
    return issubclass(error_class(code), CoordinatorError)
