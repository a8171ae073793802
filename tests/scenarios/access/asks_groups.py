"""The questions about `GroupCoordinatorService`."""

from __future__ import annotations

from typing import Any, Final

from kip932.acls import Operation as Op
from tests.scenarios.access.ask import PASSED, Ask, C, Clause, G, Right, Shown, T, first_error, need
from tests.scenarios.access.asks_cluster import new
from tests.scenarios.access.stage import GROUP, TOPIC, Caller, Stage


class _Heartbeat(Ask):
    """Requests of a member that its caller has joined."""

    rpc = "ShareGroupHeartbeat"

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        answer = await caller.heartbeat(GROUP, f"m{number}", 0, [TOPIC])
        assert not answer.error_code, answer
        self.epochs[number] = answer.member_epoch

    async def request(self, stage: Stage, number: int) -> Any:
        return new(
            "ShareGroupHeartbeat", group_id=GROUP, member_id=f"m{number}", member_epoch=self.epochs.get(number, 0)
        )


class Join(_Heartbeat):
    clauses = (need(Op.READ, G, "GAF"), need(Op.DESCRIBE, T, "TAF"))

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        """Nothing: the member is new."""

    async def request(self, stage: Stage, number: int) -> Any:
        request: Any = await super().request(stage, number)
        request.subscribed_topic_names.values.append(TOPIC)
        return request


class BeatWithNames(_Heartbeat):
    clauses = (need(Op.READ, G, "GAF"), need(Op.DESCRIBE, T, "TAF"))

    async def request(self, stage: Stage, number: int) -> Any:
        request: Any = await super().request(stage, number)
        request.subscribed_topic_names.values.append(TOPIC)
        return request


class Beat(_Heartbeat):
    clauses = (need(Op.READ, G, "GAF"),)


class Leave(_Heartbeat):
    clauses = ()  # GC-23b (b) alone: no permission; that others cannot is in test_owners

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ShareGroupHeartbeat", group_id=GROUP, member_id=f"m{number}", member_epoch=-1)


class LeaveUnknown(_Heartbeat):
    clauses = (need(Op.READ, G, "GAF"),)
    passed = Shown("UNKNOWN_MEMBER_ID")

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        """Nothing: the member does not exist."""

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ShareGroupHeartbeat", group_id=GROUP, member_id="unknown", member_epoch=-1)


class DescribeGroup(Ask):
    rpc = "ShareGroupDescribe"
    clauses = (need(Op.DESCRIBE, G, "GAF", "groups"), need(Op.DESCRIBE, T, "TAF", "groups"))

    async def prepare(self, stage: Stage) -> None:
        await stage.admin.join(GROUP, [TOPIC])

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ShareGroupDescribe", group_ids=[GROUP])


class ListGroups(Ask):
    rpc = "ListGroups"
    clauses = (Clause((Right(Op.DESCRIBE, C), Right(Op.DESCRIBE, G)), Shown("left out", "groups")),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("ListGroups")

    def shown(self, answer: Any) -> Shown:
        assert not answer.error_code, answer
        assert not answer.unserved_shards, answer
        return PASSED if [each.group_id for each in answer.groups] == [GROUP] else Shown("left out", "groups")


class DeleteGroups(Ask):
    rpc = "DeleteGroups"
    clauses = (need(Op.DELETE, G, "GAF", "results"),)

    async def request(self, stage: Stage, number: int) -> Any:
        return new("DeleteGroups", groups_names=[GROUP])

    async def after(self, stage: Stage, number: int) -> None:
        await stage.make_group()


class DescribeOffsets(Ask):
    rpc = "DescribeShareGroupOffsets"
    clauses = (need(Op.DESCRIBE, G, "GAF", "groups"), need(Op.DESCRIBE, T, "TAF", "groups.topics.partitions"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DescribeShareGroupOffsets")
        request.groups.add(group_id=GROUP).topics.values.add(topic_name=TOPIC, partitions=[0])
        return request


class DescribeAllOffsets(Ask):
    rpc = "DescribeShareGroupOffsets"
    clauses = (need(Op.DESCRIBE, G, "GAF", "groups"), need(Op.DESCRIBE, T, "left out", "groups.topics"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DescribeShareGroupOffsets")
        request.groups.add(group_id=GROUP)
        return request

    def shown(self, answer: Any) -> Shown:
        found = first_error(answer)
        return Shown("left out", "groups.topics") if found == PASSED and not answer.groups[0].topics else found


class AlterOffsets(Ask):
    rpc = "AlterShareGroupOffsets"
    clauses = (need(Op.READ, G, "GAF"), need(Op.READ, T, "TAF", "responses.partitions"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("AlterShareGroupOffsets", group_id=GROUP)
        request.topics.values.add(topic_name=TOPIC).partitions.add(partition_index=0, start_offset=0)
        return request


class DeleteOffsets(Ask):
    rpc = "DeleteShareGroupOffsets"
    clauses = (need(Op.DELETE, G, "GAF"), need(Op.READ, T, "TAF", "responses"))

    async def request(self, stage: Stage, number: int) -> Any:
        request = new("DeleteShareGroupOffsets", group_id=GROUP)
        request.topics.values.add(topic_name=TOPIC)
        return request

    async def after(self, stage: Stage, number: int) -> None:
        await stage.make_group()


#: The questions by name.
QUESTIONS: Final[dict[str, type[Ask]]] = {
    "ShareGroupHeartbeat that joins": Join,
    "ShareGroupHeartbeat of a member that names topics": BeatWithNames,
    "ShareGroupHeartbeat of a member without names": Beat,
    "ShareGroupHeartbeat with which a member leaves that its caller has joined": Leave,
    "ShareGroupHeartbeat with which an unknown member leaves": LeaveUnknown,
    "ShareGroupDescribe": DescribeGroup,
    "ListGroups": ListGroups,
    "DeleteGroups": DeleteGroups,
    "DescribeShareGroupOffsets of a topic": DescribeOffsets,
    "DescribeShareGroupOffsets of all topics": DescribeAllOffsets,
    "AlterShareGroupOffsets": AlterOffsets,
    "DeleteShareGroupOffsets": DeleteOffsets,
}
