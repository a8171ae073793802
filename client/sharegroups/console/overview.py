"""The page of what waits: a row for each group and topic, the worst first, with why it waits (CT-168)."""

from __future__ import annotations

from typing import Final

from kip932.errors import KafkaError, UnsupportedVersionError
from kip932.ids import PROGRESS_ROWS_MAX
from sharegroups.admin import Admin
from sharegroups.admin_values import ListGroupsResult
from sharegroups.console.visit import Page, Visit, sliced
from sharegroups.insight.rows import rows_of
from sharegroups.share_progress import ProgressPage

ROWS_PER_PAGE: Final = 50


def page(visit: Visit) -> Page:
    """The groups whose names have a text, with their topics."""
    problems: list[str] = []
    listed = _listed(visit.admin, problems)
    progress = _progress(visit.admin, problems)
    wanted = visit.text("find").lower()
    rows = [row for row in rows_of(progress, listed) if wanted in row.group.lower()]
    shown, part = sliced(visit, rows, ROWS_PER_PAGE)
    values = {"rows": shown, "part": part, "find": visit.text("find"), "problems": problems}
    return Page("overview.html", values)


def _listed(admin: Admin, problems: list[str]) -> ListGroupsResult | None:
    """Return the groups; None if no coordinator lists any now."""
    try:
        listed = admin.list_groups(None, ["share"])
    except KafkaError as error:
        problems.append(f"The groups' members are not known: {error.message}")
        return None
    problems += [f"The list of groups is not complete. {error.message}" for error in listed.errors()]
    return listed


def _progress(admin: Admin, problems: list[str]) -> ProgressPage:
    """Return what leaders count. Raises KafkaError when none answers."""
    try:
        found = admin.list_share_progress(limit=PROGRESS_ROWS_MAX)
    except UnsupportedVersionError:
        problems.append(
            "These nodes are of an older version and do not report lags here; the page of a group has them."
        )
        return ProgressPage((), 0, ())
    problems += [
        f"Node {address} did not answer; sums without its partitions are marked ≥." for address in found.missing
    ]
    if found.total > len(found.rows):
        left_out = found.total - len(found.rows)
        problems.append(f"{left_out:,} more rows, with less lag, are not here; the page of a group has its own.")
    return found
