"""The pages of one group: members, share-partitions with their strips, and what became of one record (CT-168)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import EXPLAINED_OFFSETS_MAX, OFFSET_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import GroupOffsets, RecordsExplained, ShareGroupDescription, ShareGroupOffset
from sharegroups.cli.groups.asking import not_found
from sharegroups.cli.groups.explain import first_unfinished, next_checks
from sharegroups.console.contents import Content, content_of
from sharegroups.console.strips import Strip, strip_of
from sharegroups.console.visit import Page, RefusedError, Visit, parts_of_commands, sliced

PARTITIONS_PER_PAGE: Final = 25
MEMBERS_PER_PAGE: Final = 50
#: How many share-partitions of a page are drawn as strips: each costs one call to its leader.
STRIPS_MAX: Final = 10


class PartitionRow(NamedTuple):
    """A share-partition of a group. `trouble`: why its values are not known."""

    partition: TopicPartition
    offset: ShareGroupOffset | None
    strip: Strip | None
    trouble: str


def group_page(visit: Visit) -> Page:
    """A group: its state, its share-partitions, those with the largest lag first, and its members."""
    name = visit.required("group")
    admin = visit.admin
    group = described(admin, name)
    offsets = admin.list_share_group_offsets({name: None}, backlog=True)[name]
    if isinstance(offsets, KafkaError):
        raise offsets
    ordered = sorted(offsets, key=lambda part: (-_lag(offsets[part]), part)) + sorted(offsets.errors)
    shown, part = sliced(visit, ordered, PARTITIONS_PER_PAGE)
    members = group.members[: MEMBERS_PER_PAGE * (visit.number("members", 1) or 1)]
    values = {
        "group": group, "rows": _rows(admin, group, offsets, shown), "part": part, "members": members,
        "members_page": visit.number("members", 1) or 1, "lag": _total_lag(offsets), "offsets": offsets,
        "in_flight": sum((each.in_flight or 0) for each in offsets.values() if each),
        "dead_letters": sum((each.dead_letters or 0) for each in offsets.values() if each),
        "rebalance": rebalance_of(group),
    }  # fmt: skip
    return Page("group.html", values)


def described(admin: Admin, name: str) -> ShareGroupDescription:
    """Return a group. Raises KafkaError; RefusedError with the most similar name if there is none."""
    found = admin.describe_share_groups([name])[name]
    if isinstance(found, GroupIdNotFoundError):
        raise RefusedError(not_found(admin, [name])[name].partition(" All groups")[0], 404)
    if isinstance(found, KafkaError):
        raise found
    return found


def rebalance_of(group: ShareGroupDescription) -> str:
    """Return in words whether members are moving to another assignment now. The epochs of a group that its members have
    left differ until one comes."""
    if not group.members:
        return "none"
    if group.group_epoch != group.assignment_epoch:
        return "going on: a new assignment is being computed"
    behind = sum(member.member_epoch < group.assignment_epoch for member in group.members)
    many = f"{behind:,} of {len(group.members):,} members have"
    return f"going on: {many} not taken over the new assignment yet" if behind else "none"


def _lag(offset: ShareGroupOffset | None) -> int:
    return -1 if offset is None or offset.lag is None else offset.lag


def _total_lag(offsets: GroupOffsets) -> int | None:
    lags = [None if each is None else each.lag for each in offsets.values()]
    return None if offsets.errors or None in lags else sum(lag or 0 for lag in lags)


def _rows(
    admin: Admin, group: ShareGroupDescription, offsets: GroupOffsets, shown: Sequence[TopicPartition]
) -> list[PartitionRow]:
    rows: list[PartitionRow] = []
    drawn = 0
    for part in shown:
        error = offsets.errors.get(part)
        offset, strip, trouble = offsets.get(part), None, "" if error is None else error.message
        if error is None and drawn < STRIPS_MAX and (offset is None or offset.lag != 0):
            drawn += 1
            try:
                strip = strip_of(_window(admin, group, part, None if offset is None else offset.start_offset))
            except KafkaError as refused:
                trouble = refused.message
        rows.append(PartitionRow(part, offset, strip, trouble))
    return rows


def _window(admin: Admin, group: ShareGroupDescription, part: TopicPartition, start: int | None) -> RecordsExplained:
    """Return the explanation of what members may hold or get now, at most 1,000 offsets. `start`: the group's start
    offset a moment ago, which saves a question: what is not in the log, or was finished since, is left out."""
    if start is None:
        begin = admin.explain_record(group.group_id, part, 0, 0, group=group)
        start = max(begin.log_start_offset, begin.start_offset or 0)
    end = min(start + EXPLAINED_OFFSETS_MAX - 1, OFFSET_MAX)
    answer = admin.explain_record(group.group_id, part, start, end, group=group)
    first = max(answer.log_start_offset, answer.start_offset or 0)
    left = [one for one in answer.records if one.last_offset >= first and one.state != "beyond_end"]
    return replace(answer, records=tuple(left or answer.records[-1:]))


def explain_page(visit: Visit) -> Page:
    """What became of a record for a group: its state, who holds it, why it failed, and what it says."""
    name = visit.text("group")
    if not name or not visit.text("topic"):
        return Page("explain.html", {"answer": None, "content": None, "form": dict(visit.fields)})
    name, part = visit.required("group"), visit.partition()
    admin = visit.admin
    try:
        if visit.text("offset"):
            first = visit.number("offset")
            answer = admin.explain_record(name, part, first)
        else:
            answer = first_unfinished(admin, name, part)
    except GroupIdNotFoundError:
        with parts_of_commands():
            described(admin, name)
        raise
    content = _content(admin, part, answer.records[0].first_offset if answer.records else None)
    notes = next_checks(admin, name, [answer])
    topic = admin.list_topics([part.topic])[part.topic]
    values = {
        "answer": answer, "topic": topic, "content": content, "strip": strip_of(answer), "notes": notes,
        "form": dict(visit.fields),
    }  # fmt: skip
    return Page("explain.html", values)


def _content(admin: Admin, part: TopicPartition, offset: int | None) -> Content | None:
    """Return a record, None if it cannot be read: what is known of its state is shown nevertheless."""
    if offset is None:
        return None
    with suppress(KafkaError):
        read = admin.read_records(part, offset, 1)
        found = next((record for record in read.records if record.offset == offset), None)
        return None if found is None else content_of(found, found.headers)
    return None
