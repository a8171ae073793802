"""Why a record is not delivered, as the admin client tells it: the leader's answer, completed by what the group knows.

The leader knows locks and writes, and no members. The group coordinator knows members and their assignment, and no
records. Only both together say "nobody has the partition". Pure: values in, values out.
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

#: The obstacles of the leader that the group's members may explain further.
_NOT_FETCHED: Final = "not_fetched"
_NO_STATE: Final = "no_state"
_START_NOT_SET: Final = "start_not_set"


def completed(told: RecordsExplained, group: ShareGroupDescription) -> RecordsExplained:
    """The leader's answer with the group's members: who a holder is, and whether anybody has the partition at all."""
    topic, partition = told.partition
    assigned = [member for member in group.members if partition in member.assignment.get(topic, ())]
    by_id = {member.member_id: member for member in group.members}
    known = replace(told, group_state=group.state, members=len(group.members), assigned_members=len(assigned))
    records = tuple(_record(record, known, by_id.get(record.member_id or "")) for record in told.records)
    return replace(known, records=records)


def _record(record: RecordExplanation, known: RecordsExplained, holder: MemberDescription | None) -> RecordExplanation:
    if holder is not None:
        record = replace(record, client_id=holder.client_id, client_host=holder.client_host)
    if record.obstacle not in {_NOT_FETCHED, _NO_STATE, _START_NOT_SET}:
        return record
    why, obstacle = _of_the_members(known)
    if record.obstacle == _NO_STATE:
        record = replace(record, explanation=f"Group '{known.group_id}' has not begun with this partition.")
    if record.obstacle == _NOT_FETCHED:
        record = replace(record, obstacle=obstacle)
    return replace(record, explanation=f"{record.explanation} {why}".rstrip())


def _of_the_members(known: RecordsExplained) -> tuple[str, str]:
    """What the group's members have to do with a partition that nobody fetches, and the obstacle."""
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
