"""Explains why a record is not delivered: the leader's response, completed with the group coordinator's.

The leader knows about locks and writes, but not about members. The group coordinator knows about members and their
assignment, but not about records. Only the two together can show that no member has the partition assigned. Pure:
values in, values out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sharegroups.admin_values import (
    GROUP_EMPTY,
    NOT_ASSIGNED,
    MemberDescription,
    RecordExplanation,
    RecordsExplained,
    ShareGroupDescription,
)

#: Obstacles reported by the leader that the group's members may explain further.
_NOT_FETCHED: Final = "not_fetched"
_NO_STATE: Final = "no_state"
_START_NOT_SET: Final = "start_not_set"


def completed(answer: RecordsExplained, group: ShareGroupDescription) -> RecordsExplained:
    """Return the leader's response completed with the group's members: who holds each record, and how many have the
    partition assigned."""
    topic, partition = answer.partition
    assigned = [member for member in group.members if partition in member.assignment.get(topic, ())]
    by_id = {member.member_id: member for member in group.members}
    known = replace(answer, group_state=group.state, members=len(group.members), assigned_members=len(assigned))
    records = tuple(_record(record, known, by_id.get(record.member_id or "")) for record in answer.records)
    return replace(known, records=records)


def _record(record: RecordExplanation, known: RecordsExplained, holder: MemberDescription | None) -> RecordExplanation:
    if holder is not None:
        record = replace(record, client_id=holder.client_id, client_host=holder.client_host)
    if record.obstacle not in {_NOT_FETCHED, _NO_STATE, _START_NOT_SET}:
        return record
    why, obstacle = _members_obstacle(known)
    if record.obstacle == _NO_STATE:
        record = replace(record, explanation=f"Group '{known.group_id}' has not started on this partition.")
    if record.obstacle == _NOT_FETCHED:
        record = replace(record, obstacle=obstacle)
    return replace(record, explanation=f"{record.explanation} {why}".rstrip())


def _members_obstacle(known: RecordsExplained) -> tuple[str, str]:
    """Return why no member fetches the partition, according to the group's members, and the obstacle."""
    if not known.members:
        return "The group has no members: start a consumer.", GROUP_EMPTY
    some = "1 member" if known.members == 1 else f"{known.members} members"
    if not known.assigned_members:
        topic, _ = known.partition
        return (
            f"The group has {some}, and none of them is assigned the partition: do they subscribe to '{topic}'?",
            NOT_ASSIGNED,
        )
    return (
        f"The group has {some}, of which {known.assigned_members} should fetch it: one that has just joined begins "
        "within moments. One that was killed is counted out when it misses its next heartbeat: within the group's "
        "heartbeat interval and 1 s, or sharegroups.lost.connection.grace.ms if that is longer. One whose machine fell "
        "silent is counted out after group.share.session.timeout.ms.",
        _NOT_FETCHED,
    )
