"""Rows of what waits: one for each group and topic, or one for each group, the worst first (CT-154, CT-156)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sharegroups.admin_values import GroupOffsets, ListGroupsResult
from sharegroups.insight.causes import KEEPS_UP, Group, why
from sharegroups.insight.figures import UNKNOWN, Count, Rate, duration, total
from sharegroups.share_progress import ProgressPage, ShareProgress

NEVER: Final = "never at this rate"
NONE: Final = "-"


class Drained(NamedTuple):
    """When the lag is gone if records arrive and are finished as they are now. `in_ms`: None when that is unknown, or
    `never`, or `steady`: as many are finished as arrive, and the
    oldest is young, so the lag is that of a moment."""

    in_ms: int | None
    never: bool = False
    steady: bool = False

    @property
    def text(self) -> str:
        """The duration; `-` when there is no lag, or the group keeps up."""
        if self.never:
            return NEVER
        if self.steady or self.in_ms == 0:
            return NONE
        return UNKNOWN if self.in_ms is None else duration(self.in_ms)


class Row(NamedTuple):
    """What waits for one group in one topic. `topic` is empty, and all figures are unknown, for a group that no leader
    counts. `state` is None if no coordinator lists the group. `given_up`: records rejected, or archived at the delivery
    limit, since their leaders count; `dead_letters`: those whose dead letter is not written yet."""

    group: str
    topic: str
    state: str | None
    members: Count
    lag: Count
    oldest_ms: Count
    arriving: Rate
    finishing: Rate
    drained: Drained
    in_flight: Count
    delayed: Count
    given_up: Count
    dead_letters: Count
    why: str

    @property
    def oldest_text(self) -> str:
        """The age of the oldest record; `-` when none is left."""
        return oldest_text(self.lag, self.oldest_ms)


class GroupRow(NamedTuple):
    """What waits for one group in all its topics. `topics`: the number of topics in which the group has begun."""

    group: str
    state: str | None
    members: Count
    topics: Count
    lag: Count
    oldest_ms: Count

    @property
    def oldest_text(self) -> str:
        """The age of the oldest record; `-` when none is left."""
        return oldest_text(self.lag, self.oldest_ms)


def oldest_text(lag: Count, oldest_ms: Count) -> str:
    """Return the age of the oldest record; `-` when the lag is known to be 0."""
    return NONE if lag.value == 0 and not lag.at_least and oldest_ms.value is None else oldest_ms.age_text


def is_cut(page: ProgressPage) -> bool:
    """Return whether leaders left out rows, so that sums over their partitions or topics may be too small."""
    return page.total > len(page.rows)


def rows_of(page: ProgressPage, listed: ListGroupsResult | None) -> list[Row]:
    """Return a row for each group and topic, and one for each listed group without progress; the worst first. `listed`:
    None when no coordinator answered in time."""
    groups = _groups(listed)
    partial = bool(page.missing) or is_cut(page)
    rows = [_row(each, _group(each.group, groups, listed), page, partial) for each in page.rows]
    if not is_cut(page):  # otherwise the rows of a group may be among those that were left out
        counted = {each.group for each in page.rows}
        rows += [_uncounted(name, group, page) for name, group in groups.items() if name not in counted]
    return sorted(rows, key=worst_first)


def groups_of(
    page: ProgressPage, listed: ListGroupsResult, stored: Mapping[str, GroupOffsets] | None = None
) -> list[GroupRow]:
    """Return a row for each listed group, the largest lag first, then those whose lag is unknown. `stored`: the offsets
    of groups that no leader counts."""
    progress: defaultdict[str, list[ShareProgress]] = defaultdict(list)
    for each in page.rows:
        progress[each.group].append(each)
    partial = bool(page.missing) or is_cut(page)
    rows = []
    for name, group in _groups(listed).items():
        if name in progress or name not in (stored or {}):
            rows.append(_group_row(name, group, progress.get(name, ()), partial))
        else:
            rows.append(_stored_row(name, group, (stored or {})[name]))
    return sorted(rows, key=worst_first)


def uncounted(page: ProgressPage, listed: ListGroupsResult) -> list[str]:
    """Return the listed groups that no leader counts, such as those without a member since their leaders started."""
    if is_cut(page) or page.missing:
        return []
    counted = {each.group for each in page.rows}
    return [group.group_id for group in listed.valid() if group.group_id not in counted]


def worst_first(row: Row | GroupRow) -> tuple[object, ...]:
    """Sort key: the largest lag first, unknown lags after the known ones, those without a lag last."""
    return (_lag_key(row.lag), -(row.oldest_ms.value or 0), row.group, getattr(row, "topic", ""))


def _lag_key(lag: Count) -> tuple[int, int]:
    if lag.value:
        return (0, -lag.value)
    return (1, 0) if lag.value is None or lag.at_least else (2, 0)


def _groups(listed: ListGroupsResult | None) -> Mapping[str, Group]:
    found = () if listed is None else listed.valid()
    return {group.group_id: Group(group.state, group.members) for group in found}


def _group(name: str, groups: Mapping[str, Group], listed: ListGroupsResult | None) -> Group:
    if name in groups:
        return groups[name]
    is_gone = listed is not None and not listed.errors()
    return Group(None, 0 if is_gone else None)


def _row(progress: ShareProgress, group: Group, page: ProgressPage, partial: bool) -> Row:
    arriving = _rate(progress.recent_arrived, progress.recent_ms, partial)
    finishing = _rate(progress.recent_finished, progress.recent_ms, partial)
    lag = Count(progress.lag, partial and progress.lag is not None)
    cause = why(progress, group, page.missing)
    return Row(
        progress.group,
        progress.topic,
        group.state,
        Count(group.members),
        lag,
        Count(progress.oldest_ms, progress.oldest_ms is not None and (partial or progress.lag is None)),
        arriving,
        finishing,
        _drained(lag, arriving, finishing, keeps_up=cause == KEEPS_UP),
        Count(progress.in_flight, partial),
        Count(progress.delayed, partial),
        Count(progress.archived, partial),
        Count(progress.dead_letters, partial),
        cause,
    )


def _uncounted(name: str, group: Group, page: ProgressPage) -> Row:
    unknown, rate = Count(None), Rate(None)
    cause = why(None, group, page.missing)
    return Row(
        name, "", group.state, Count(group.members), unknown, unknown, rate, rate, Drained(None), unknown, unknown,
        unknown, unknown, cause,
    )  # fmt: skip


def _group_row(name: str, group: Group, rows: Iterable[ShareProgress], partial: bool) -> GroupRow:
    listed = tuple(rows)
    lag = total(Count(each.lag, partial) for each in listed)
    ages = [each.oldest_ms for each in listed if each.oldest_ms is not None]
    unsure = partial or any(each.lag is None or (each.lag and each.oldest_ms is None) for each in listed)
    return GroupRow(
        name,
        group.state,
        Count(group.members),
        Count(len(listed) or None, partial),
        lag,
        Count(max(ages, default=None), bool(ages) and unsure),
    )


def _stored_row(name: str, group: Group, offsets: GroupOffsets) -> GroupRow:
    topics = {partition.topic for partition in (*offsets, *offsets.errors)}
    lags = [Count(None if entry is None else entry.lag) for entry in offsets.values()]
    lag = total([*lags, *(Count(None) for _ in offsets.errors)]) if topics else Count(0)
    return GroupRow(name, group.state, Count(group.members), Count(len(topics)), lag, Count(None))


def _rate(records: int, recent_ms: int, partial: bool) -> Rate:
    return Rate(records * 1_000 / recent_ms if recent_ms > 0 else None, partial)


def _drained(lag: Count, arriving: Rate, finishing: Rate, *, keeps_up: bool) -> Drained:
    if lag.value == 0 and not lag.at_least:
        return Drained(0)
    if lag.value is None or lag.at_least or arriving.per_s is None or finishing.per_s is None:
        return Drained(None)
    gain = finishing.per_s - arriving.per_s
    if gain > 0:
        return Drained(max(int(lag.value / gain * 1_000), 1))
    return Drained(None, steady=True) if keeps_up and not gain else Drained(None, never=True)
