"""MemberSessionsService: ends the sessions of members that group coordinators have removed (PL-528).

It is served only to nodes (CM-80), so it checks no permissions.
"""

from __future__ import annotations

from typing import Final

from kip932.errors import InvalidRequestError
from kip932.internal.v1 import end_member_sessions_pb2 as pb
from partition_leader.sessions.core.session import SessionKey
from partition_leader.share_rpc.removals import MemberRemovals
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns

#: The maximum number of removals in one call.
REMOVALS_MAX: Final = 1_000
#: How many are carried out in one turn of the event loop.
_SLICE: Final = 20


class MemberSessions:
    """The handler of `EndMemberSessions`."""

    def __init__(self, removals: MemberRemovals) -> None:
        self._removals = removals

    async def end_member_sessions(
        self, request: pb.EndMemberSessionsRequest, context: CallContext
    ) -> pb.EndMemberSessionsResponse:
        """End the sessions that members had before their removal, without waiting for the release of their records.
        Raises InvalidRequestError for more removals than a call may have (CM-91)."""
        del context
        if len(request.members) > REMOVALS_MAX:
            raise InvalidRequestError(f"{len(request.members)} removed members in one call; at most {REMOVALS_MAX}")
        turns = Turns(_SLICE)
        for member in request.members:
            self._removals.removed(SessionKey(member.group_id, member.member_id), member.group_epoch)
            await turns.step()
        return pb.EndMemberSessionsResponse()
