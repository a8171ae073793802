"""Progress of made-up groups, for the tests of rows, causes and screens."""

from __future__ import annotations

from typing import Any, Final

from sharegroups.admin_values import GroupListing, ListGroupsResult
from sharegroups.errors import NetworkError
from sharegroups.share_progress import ProgressPage, ShareProgress

#: A group that has finished everything, and whose members fetch.
IDLE: Final = ShareProgress(
    "workers", "orders", -1, 2, lag=0, oldest_ms=None, in_flight=0, delayed=0, dead_letters=0, finished=100, archived=0,
    arrived=100, recent_ms=10_000, recent_finished=0, recent_arrived=0, since_finish_ms=30_000, longest_member="",
    longest_held_ms=0, fetching=1,
)  # fmt: skip


def progress(group: str = "workers", topic: str = "orders", **figures: Any) -> ShareProgress:
    """Return an idle group's progress with some figures replaced."""
    return IDLE._replace(group=group, topic=topic, **figures)


def page(*rows: ShareProgress, missing: tuple[str, ...] = (), total: int | None = None) -> ProgressPage:
    """Return a page of these rows."""
    return ProgressPage(rows, len(rows) if total is None else total, missing)


def groups(*, failed: str = "", **members: int | None) -> ListGroupsResult:
    """Return the list of groups with these numbers of members; `failed`: why it is not complete."""
    listed = [GroupListing(name, _state(count), "share", count) for name, count in sorted(members.items())]
    return ListGroupsResult(listed, [NetworkError(failed)] if failed else ())


def _state(members: int | None) -> str:
    return "Unknown" if members is None else "Stable" if members else "Empty"
