"""The page of all groups (CT-168)."""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.errors import KafkaError
from sharegroups.console.visit import Page, Visit, sliced

GROUPS_PER_PAGE: Final = 50


class GroupRow(NamedTuple):
    """A group, and its lag; None: unknown."""

    name: str
    state: str
    lag: int | None


def page(visit: Visit) -> Page:
    """The groups by name, with their lag."""
    listing = visit.admin.list_groups(None, ["share"])
    wanted = visit.text("find").lower()
    groups = [each for each in listing.valid() if wanted in each.group_id.lower()]
    shown, part = sliced(visit, groups, GROUPS_PER_PAGE)
    found = visit.admin.list_share_group_offsets(dict.fromkeys(each.group_id for each in shown)) if shown else {}
    rows = []
    for each in shown:
        offsets = found[each.group_id]
        lags = [None] if isinstance(offsets, KafkaError) else [one.lag if one else None for one in offsets.values()]
        rows.append(GroupRow(each.group_id, each.state, None if None in lags else sum(lag or 0 for lag in lags)))
    values = {"rows": rows, "part": part, "find": visit.text("find"), "errors": listing.errors()}
    return Page("overview.html", values)
