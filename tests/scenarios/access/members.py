"""Members of the stage's group with their sessions, each a caller of its own."""

from __future__ import annotations

from typing import Any

from tests.integration.scenarios.sessions import Session
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.stage import GROUP, TOPIC, Caller, Stage, error_name


class Member(Session):
    """A member with a principal; `member_epoch` is its newest epoch in the group."""

    def __init__(self, stage: Stage, principal: str | None, member: str) -> None:
        self.caller: Caller = stage.caller(principal)
        super().__init__(self.caller, GROUP, member, stage.topic_id)
        self.member_epoch = 0

    async def beat(self, topics: list[str] | None = None) -> Any:
        """Send a heartbeat with the newest epoch."""
        answer = await self.caller.call("ShareGroupHeartbeat", self._beat(self.member_epoch, topics))
        if not answer.error_code:
            self.member_epoch = answer.member_epoch
        return answer

    async def leave(self) -> Any:
        """Leave the group."""
        return await self.caller.call("ShareGroupHeartbeat", self._beat(-1, None))

    def _beat(self, epoch: int, topics: list[str] | None) -> Any:
        request = beating(self.member, epoch)
        if topics is not None:
            request.subscribed_topic_names.values.extend(topics)
        return request

    async def close_session(self) -> Any:
        """Close the session."""
        return await self.acknowledge(epoch=-1)


def beating(member: str, epoch: int) -> Any:
    """Return a heartbeat."""
    return METHODS["ShareGroupHeartbeat"].request_type(group_id=GROUP, member_id=member, member_epoch=epoch)


async def joined(stage: Stage, principal: str | None, member: str) -> Member:
    """Return a member of the group; it has no session yet."""
    made = Member(stage, principal, member)
    answer = await made.beat([TOPIC])
    assert not answer.error_code, answer
    return made


def top(answer: Any) -> str:
    """Return the name of the error of a whole response."""
    return error_name(answer.error_code)


def parts(answer: Any) -> list[str]:
    """Return the names of each partition's error and, if there is one, of its acknowledgements' error."""
    found = []
    for topic in answer.responses:
        for part in topic.partitions:
            names = [error_name(part.error_code)]
            if getattr(part, "acknowledge_error_code", 0):
                names.append(error_name(part.acknowledge_error_code))
            found.append(" ".join(names))
    return found


def got(answer: Any) -> list[tuple[int, int, int]]:
    """Return the acquired ranges in a response, no matter what else it contains."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for part in topic.partitions
        for each in part.acquired_records
    ]
